"""Masks of attention: the causal mask and the mask of padding.

A query at position p_t sees a key at position p_s when 0 <= p_t - p_s < window; the window counts the token itself.
Slots of a cache with position -1 are empty. The same rule serves the plain forward pass and the cache, because both
state the position of every key.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array


class View(NamedTuple):
    """View that the self-attention of every layer of a pass shares; made once, before the first layer."""

    mask_BTS: Array  # bool: the keys that each query may see
    positions_BT: Array  # of the new tokens, whose queries and keys are rotated by them
    query_BT: Array  # positions of the queries, for a bias of the scores
    key_BS: Array  # positions of the keys, for a bias of the scores; -1 for an empty slot
    ways: Any  # functions project, attend and join: the module `attention`, or `window.Ways`
    store: Callable[..., Any] | None = None  # (cache, k_BTHK, v_BTHK) -> (k_BSHK, v_BSHK, cache); None: the new keys


def causal_mask(positions_BT: Array, positions_BS: Array, window: int | None = None) -> Array:
    """Return the causal mask, (B, T, S) bool: the keys S that each query T may see."""
    offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
    seen_BTS = (offsets_BTS >= 0) & (positions_BS >= 0)[:, None, :]
    return seen_BTS if window is None else seen_BTS & (offsets_BTS < window)


def mask_padding(tokens_BT: Array, lengths_B: Array | None = None) -> tuple[Array, Array]:
    """Return the tokens with 0 for padding, and which of them are real, (B, T) bool; all are without lengths."""
    if lengths_B is None:
        return tokens_BT, jnp.ones(tokens_BT.shape, bool)
    real_BT = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None] < lengths_B[:, None]
    return jnp.where(real_BT, tokens_BT, 0), real_BT
