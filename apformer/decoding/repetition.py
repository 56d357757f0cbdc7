"""Repetition penalty: tokens that a row already holds become less likely, or, below 1, more likely.

    z_v <- z_v / penalty where z_v > 0, z_v penalty elsewhere,      for each token v of the row so far

Keskar et al. 2019. The row so far is all that the model has in its context: the prompt, and what was written after it.
The penalty is a part of the model: its cache keeps which tokens the row holds. So everything that generates follows it.
"""

import math
from dataclasses import replace
from functools import cache

import jax.numpy as jnp
from jax.tree_util import Partial


def penalized(model, penalty):
    """The Model (see `bind.py`) whose logits are penalized; its cache is (the model's cache, seen_BV).

    cfg.vocab_size is the number of its tokens. Raises ValueError unless 0 < penalty < inf.
    """
    if not 0 < penalty < math.inf:
        raise ValueError(f"repetition penalty {penalty} is not a positive number: use 1 for none")
    penalty = jnp.asarray(penalty, float)
    return replace(
        model,
        apply=Partial(_apply, penalty, model.apply),
        extend=Partial(_extend, penalty, model.extend),
        init_cache=Partial(_init_cache(model.cfg.vocab_size), model.init_cache),
    )


def _apply(penalty, apply, tokens_BT):
    logits_BTV = apply(tokens_BT)
    first_BV = _first(tokens_BT, logits_BTV)
    return _penalize(logits_BTV, first_BV, jnp.zeros(first_BV.shape, bool), penalty)


def _extend(penalty, extend, tokens_BT, cache, lengths_B=None):
    cache, seen_BV = cache
    logits_BTV, cache = extend(tokens_BT, cache, lengths_B=lengths_B)
    first_BV = _first(tokens_BT, logits_BTV)
    held_BV = first_BV < (tokens_BT.shape[1] if lengths_B is None else lengths_B[:, None])
    return _penalize(logits_BTV, first_BV, seen_BV, penalty), (cache, seen_BV | held_BV)


@cache  # so that jit knows the function again
def _init_cache(vocab_size):
    def init_cache(inner, batch_size, length):
        return inner(batch_size, length), jnp.zeros((batch_size, vocab_size), bool)

    return init_cache


def _first(tokens_BT, logits_BTV):
    """The first position of each token of the vocabulary in each row; T where it has none."""
    (B, T), V = tokens_BT.shape, logits_BTV.shape[-1]
    return jnp.full((B, V), T, jnp.int32).at[jnp.arange(B)[:, None], tokens_BT].min(jnp.arange(T, dtype=jnp.int32))


def _penalize(logits_BTV, first_BV, seen_BV, penalty):
    """A position follows its own token and those before it, and never meets the padding after a row."""
    row_T = jnp.arange(logits_BTV.shape[1], dtype=jnp.int32)
    held_BTV = seen_BV[:, None] | (first_BV[:, None] <= row_T[None, :, None])
    penalty = penalty.astype(logits_BTV.dtype)
    return jnp.where(held_BTV, jnp.where(logits_BTV > 0, logits_BTV / penalty, logits_BTV * penalty), logits_BTV)
