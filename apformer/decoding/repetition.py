"""Repetition penalty: tokens that a row already holds become less likely, or, below 1, more likely.

    z_v <- z_v / penalty where z_v > 0, z_v penalty elsewhere,      for each token v of the row so far

Keskar et al. 2019. The row so far is all that the model has in its context: the prompt, and what was written after it.
The penalty is a part of the model: its cache keeps which tokens the row holds. So everything that generates follows it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from apformer.decoding.bind import Model


def penalized(model: Model, penalty: float) -> Model:
    """Return the Model whose logits are penalized; its cache is (the model's cache, seen_BV).

    cfg.vocab_size is the number of its tokens. Raises ValueError unless 0 < penalty < inf.
    """
    if not 0 < penalty < math.inf:
        raise ValueError(f"repetition penalty {penalty} is not a positive number: use 1 for none")
    factor = jnp.asarray(penalty, float)
    return replace(
        model,
        apply=Partial(_apply, factor, model.apply),
        extend=Partial(_extend, factor, model.extend),
        init_cache=Partial(_init_cache(model.cfg.vocab_size), model.init_cache),
    )


def _apply(penalty: jax.Array, apply: Callable, tokens_BT: jax.Array) -> jax.Array:
    def extend(tokens_BT: jax.Array, cache: None, lengths_B: None) -> tuple[jax.Array, None]:
        return apply(tokens_BT), cache

    seen_11 = jnp.zeros((1, 1), bool)
    return _extend(penalty, extend, tokens_BT, (None, seen_11))[0]


def _extend(
    penalty: jax.Array,
    extend: Callable,
    tokens_BT: jax.Array,
    cache: tuple[Any, jax.Array],
    lengths_B: jax.Array | None = None,
) -> tuple[jax.Array, tuple[Any, jax.Array]]:
    """Penalize tokens at and before each position, and never those of the padding after a row."""
    inner, seen_BV = cache
    logits_BTV, inner = extend(tokens_BT, inner, lengths_B=lengths_B)
    (B, T), V = tokens_BT.shape, logits_BTV.shape[-1]
    place_T = jnp.arange(T, dtype=jnp.int32)
    # The first position of each token of the vocabulary in each row; T where it has none.
    first_BV = jnp.full((B, V), T, jnp.int32).at[jnp.arange(B)[:, None], tokens_BT].min(place_T)
    held_BTV = seen_BV[:, None] | (first_BV[:, None] <= place_T[None, :, None])
    penalty = penalty.astype(logits_BTV.dtype)
    penalized_BTV = jnp.where(logits_BTV > 0, logits_BTV / penalty, logits_BTV * penalty)
    seen_BV |= first_BV < (T if lengths_B is None else lengths_B[:, None])
    return jnp.where(held_BTV, penalized_BTV, logits_BTV), (inner, seen_BV)


@cache  # so that jit knows the function again
def _init_cache(vocab_size: int) -> Callable:
    def init_cache(inner: Callable, batch_size: int, length: int) -> tuple[Any, jax.Array]:
        return inner(batch_size, length), jnp.zeros((batch_size, vocab_size), bool)

    return init_cache
