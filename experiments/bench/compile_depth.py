"""Time the compilation of a training step of GPT-2 by depth: `python experiments/bench/compile_depth.py`.

The blocks are scanned, so that only one is compiled at any depth. Nothing is allocated and nothing runs.
"""

import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from apformer import flags, loss, model, optimizer, train
from apformer.formats import gpt2
from apformer.tasks.batch import Batch


@dataclass(frozen=True)
class Bench:
    """Time the compilation of a training step at several depths."""

    size: Literal["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"] = "gpt2"
    """The published size, of which only the depth is changed."""
    depths: tuple[int, ...] = (12, 48)
    """Numbers of layers."""
    batch_size: int = 8
    """Rows of a step."""
    length: int = 256
    """Tokens of a row."""
    rounds: int = 3
    """Measurements of each depth, of which the least counts."""


def bench(args):
    """Print the seconds of each depth, and their ratio to those of the first."""
    jax.config.update("jax_enable_compilation_cache", False)
    best = dict.fromkeys(args.depths, float("inf"))
    for _ in range(args.rounds):
        for depth in args.depths:
            seconds = compile_seconds(replace(gpt2.SIZES[args.size], n_layers=depth), args.batch_size, args.length)
            best[depth] = min(best[depth], seconds)
    for depth, seconds in best.items():
        print(
            f"{depth:3d} layers: {seconds:6.2f} s, {seconds / best[args.depths[0]]:.2f} times {args.depths[0]} layers"
        )


def compile_seconds(cfg, batch_size, length):
    """Return the seconds to trace, lower and compile a training step of a model from its shapes alone."""
    settings = optimizer.Config()
    rule = optimizer.make(settings, steps=1000)

    def init():
        key = jax.random.key(0)
        return train.init_state(key, model.init(key, cfg), rule, settings.hyper())

    state = jax.eval_shape(init)
    tokens, weights = (jax.ShapeDtypeStruct((batch_size, length), dtype) for dtype in (jnp.int32, jnp.float32))
    step = train.make_train_step(partial(loss.next_token_loss, cfg=cfg, apply=model.apply), rule)
    jax.clear_caches()
    begin = time.perf_counter()
    jax.jit(step, donate_argnums=0).lower(state, Batch(tokens, weights)).compile()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(flags.script("compile_depth.py", Bench, bench))
