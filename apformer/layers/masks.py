"""Masks of attention, and the view that all layers of a pass share.

A query at position p_t sees a key at position p_s when 0 <= p_t - p_s < window; the window counts the token itself.
Whole rows and a cache follow the same rule, since both state the position of every key: -1 for an empty slot.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array


class View(NamedTuple):
    """Keys that the queries of a pass see; made once, before the first layer.

    Attributes:
        mask_BTS: Keys that each query may see, bool.
        positions_BT: Positions of the new tokens, by which their queries and keys are rotated.
        query_BT: Positions of the queries, for a bias of the scores.
        key_BS: Positions of the keys, for a bias of the scores.
        store: Function (cache, k_BTHK, v_BTHK) -> (k_BSHK, v_BSHK, cache); None without a cache.
        faster: Functions to use instead of project, attend and join of attention.py and product of feedforward.py;
            empty for none.
    """

    mask_BTS: Array
    positions_BT: Array
    query_BT: Array
    key_BS: Array
    store: Any = None
    faster: tuple[Callable[..., Any], ...] = ()


def whole_view(positions_BT: Array, window: int | None = None) -> View:
    """Return the view of whole rows: a token sees itself and those before it, within the window if there is one."""
    return View(causal_mask(positions_BT, positions_BT, window), positions_BT, positions_BT, positions_BT)


def causal_mask(positions_BT: Array, positions_BS: Array, window: int | None = None) -> Array:
    """Return the causal mask, (B, T, S) bool: the keys S that each query T may see."""
    offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
    seen_BTS = (offsets_BTS >= 0) & (positions_BS >= 0)[:, None, :]
    return seen_BTS if window is None else seen_BTS & (offsets_BTS < window)


def mask_padding(tokens_BT: Any, lengths_B: Array | None) -> tuple[Array, Array]:
    """Return the tokens with 0 for padding, and the mask of real tokens, (B, T) bool; without lengths all are real."""
    if lengths_B is None:
        return jnp.asarray(tokens_BT), jnp.ones(tokens_BT.shape, bool)
    real_BT = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None] < lengths_B[:, None]
    return jnp.where(real_BT, tokens_BT, 0), real_BT
