"""Attention within a window, chunk by chunk: time and memory grow with the length of a row, not with its square.

    queries of chunk c, Q >= window of them, see keys of the chunks c - 1 and c alone

So a row is cut into chunks, each with its own keys and those of the chunk before. Chunks then stand where rows stood,
and attention is computed of them as of rows (Beltagy et al. 2020, sliding chunks). The result is that of the whole
square: what the mask hides there is not computed here.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import export

from apformer.layers.masks import causal_mask

LEAST = 32  # queries of a chunk: smaller products are slower than the squares they replace
EMPTY = -1  # the position of what is no token


def size(T, window):
    """Queries of a chunk in rows of T tokens; None where a square costs less, or where T is a symbol."""
    if window is None or export.is_symbolic_dim(T) or T < 4 * max(window, LEAST):
        return None
    return max(window, LEAST)


def cut(q_BTHK, k_BSHK, v_BSHK, view):
    """Queries, keys and values of chunks, (B chunks, Q or 2 Q, H, K), and what these see."""
    Q = view.chunk
    q_BTHK, k_BSHK, v_BSHK = queries(q_BTHK, Q), keys(k_BSHK, Q), keys(v_BSHK, Q)
    seen = {
        "mask_BTS": for_all(view.mask_BTS, len(q_BTHK)),
        "positions_BT": queries(view.positions_BT, Q, EMPTY),
        "positions_BS": keys(view.positions_BT, Q, EMPTY),
    }
    return q_BTHK, k_BSHK, v_BSHK, replace(view, chunk=None, **seen)


def mask(positions_BT, Q, window):
    """Which of the 2 Q keys of its chunk each query may see: (chunks, Q, 2 Q) bool for each row of positions."""
    return causal_mask(queries(positions_BT, Q, EMPTY), keys(positions_BT, Q, EMPTY), window)


def queries(x_BT, Q, fill=0):
    """Rows as chunks of Q tokens, those of a row one after the other, the last filled up: (B chunks, Q, ...)."""
    return _chunks(x_BT, Q, fill).reshape(-1, Q, *x_BT.shape[2:])


def keys(x_BT, Q, fill=0):
    """What the chunks see: the tokens of the chunk before, then their own: (B chunks, 2 Q, ...)."""
    own = _chunks(x_BT, Q, fill)
    before = jnp.concatenate([jnp.full_like(own[:, :1], fill), own[:, :-1]], axis=1)
    return jnp.concatenate([before, own], axis=2).reshape(-1, 2 * Q, *x_BT.shape[2:])


def join(x_BTD, B, T):
    """B rows of T tokens from their chunks."""
    return x_BTD.reshape(B, -1, x_BTD.shape[-1])[:, :T]


def _chunks(x_BT, Q, fill):
    """(B, chunks, Q, ...)"""
    B, T = x_BT.shape[:2]
    x_BT = jnp.pad(x_BT, ((0, 0), (0, -T % Q), *((0, 0),) * (x_BT.ndim - 2)), constant_values=fill)
    return x_BT.reshape(B, -1, Q, *x_BT.shape[2:])


def for_all(x, rows):
    """What the chunks of one row have in common, for those of all rows."""
    return x if x is None else jnp.tile(x, (rows // len(x), *(1,) * (x.ndim - 1)))
