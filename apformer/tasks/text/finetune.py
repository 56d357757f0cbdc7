"""Fine-tuning: train a given model further on another text, all its weights or low-rank adapters of them.

    full        p <- p - step of grad loss(p)
    low_rank    p = merge(p_0, adapters), and the adapters alone are trained          apformer/layers/lora.py

Parameters are kept in float32 and cast to the compute dtype anew for each part of a step, after merging, so that in
bfloat16 no small step is lost. Of a block, whose activations are most of what a long row needs, the inside can be
computed anew for the gradient (Chen et al. 2016); rows can be taken in parts, whose gradients are averaged.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss, model, optimizer, train
from apformer.errors import NON_FINITE, UserError
from apformer.layers import lora
from apformer.tasks.text import corpus, training


@dataclass(frozen=True)
class Way:
    """How to train further."""

    method: Literal["full", "low_rank"] = "full"
    """Train all weights, or adapters of low rank alone."""
    rank: int = 8
    """Of the adapters."""
    alpha: float = 16.0
    """The product of their factors is multiplied by alpha / rank."""
    steps: int = 100
    """Optimizer steps."""
    batch_size: int = 8
    """Rows at a time."""
    accumulate: int = 1
    """How many times so many rows make up a step."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the forward and backward pass; parameters stay float32."""
    remat: bool = False
    """Compute the inside of the blocks anew for the gradient: less memory, more time."""


@dataclass(frozen=True)
class Settings:
    """All that a compiled step depends on besides arrays."""

    way: Way
    model: model.Config
    data: corpus.Config
    optimizer: optimizer.Config


class Result(NamedTuple):
    """The parameters of the least validation loss, in the shapes of those given, and how they were come by."""

    params: dict
    loss: float
    step: int
    curve: list
    """(step, validation loss) at step 0 and at every evaluation."""


def start(key, params, settings):
    """(what is trained, what stays): the parameters and nothing, or adapters and the parameters."""
    if settings.way.method == "full":
        return jax.tree.map(jnp.copy, params), None  # what is trained is donated, and `params` is the caller's
    return lora.init(key, params, settings.way.rank), jax.tree.map(jnp.asarray, params)


@partial(jax.jit, static_argnames="settings")
def whole(trained, base, settings):
    """The parameters that what is trained and what stays make up."""
    return trained if base is None else lora.merge(base, trained, settings.way.alpha)


def make_loss(base, settings):
    """loss_fn(trained, batch, key) -> (loss, metrics), of fresh windows."""
    apply = partial(model.apply, remat=settings.way.remat)

    def loss_fn(trained, batch, key):
        params = _cast(whole(trained, base, settings), settings.way.compute_dtype)
        return loss.next_token_loss(params, batch, key if settings.model.dropout else None, settings.model, apply=apply)

    return loss_fn


@partial(jax.jit, static_argnames="settings", donate_argnames="state")
def step(state, base, tokens_N, settings):
    """(state, metrics) after one step on accumulate * batch_size windows from anywhere in the tokens.

    The same to rounding, however these are divided between the two, if there is no dropout. The state is donated.
    """
    way = settings.way
    rule = optimizer.make(settings.optimizer, way.steps)
    _, batch_key = train.step_keys(state)
    batch = corpus.windows(batch_key, tokens_N, settings.data, way.accumulate * way.batch_size)
    return train.make_train_step(make_loss(base, settings), rule, way.accumulate)(state, batch)


@partial(jax.jit, static_argnames=("cfg", "dtype"))
def validate(params, batches, cfg, dtype):
    """Mean nats per token of the whole validation part, without dropout."""
    return training.validation_loss(_cast(params, dtype), batches, cfg)


def _cast(params, dtype):
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)


def fit(params, rows, settings, seed, evaluate_every, report):
    """Train params further on rows["train"]: a Result. They stay as they are.

    report(step, loss, record) is called after every step; record, of what was measured since the evaluation before, is
    None between evaluations. Raises UserError (exit NON_FINITE) as soon as a loss is not finite.
    """
    adapter_key, run_key = jax.random.split(jax.random.key(seed))
    trained, base = start(adapter_key, params, settings)
    rule = optimizer.make(settings.optimizer, settings.way.steps)
    state = train.init_state(run_key, trained, rule, settings.optimizer.hyper())
    # What `hyper` says is data, and compiles nothing anew.
    program = replace(settings, optimizer=replace(settings.optimizer, learning_rate=1.0, weight_decay=0.0))
    tokens_N, batches = jnp.asarray(rows["train"]), training.validation_batch(settings, rows)
    score = partial(validate, batches=batches, cfg=settings.model, dtype=settings.way.compute_dtype)
    best = Result(params, _finite(score(params), 0), 0, [])
    losses, begun = [], time.perf_counter()
    best.curve.append((0, best.loss))
    for number in range(1, settings.way.steps + 1):
        state, metrics = step(state, base, tokens_N, program)
        losses.append(_finite(metrics["loss"], number))
        record = None
        if number % evaluate_every == 0 or number == settings.way.steps:
            candidate = whole(state.params, base, program)
            nats = _finite(score(candidate), number)
            best.curve.append((number, nats))
            seconds = round(time.perf_counter() - begun, 3)
            record = {"step": number, "loss": float(np.mean(losses)), "validation_loss": nats, "seconds": seconds}
            losses = []
            if nats < best.loss:
                best = best._replace(params=jax.tree.map(np.array, candidate), loss=nats, step=number)  # copies
        report(number, float(metrics["loss"]), record)
    return best


def _finite(loss, number):
    if not np.isfinite(loss := float(loss)):
        raise UserError(f"the loss is not finite at step {number}: lower --learning_rate", NON_FINITE)
    return loss
