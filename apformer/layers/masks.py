"""What a query may see: the causal mask, the mask of padding, and the view that all layers of one pass share.

The masks are made here. `weighting.py` applies them to the scores.

A query at position p_t sees a key at position p_s when 0 <= p_t - p_s < window (the window counts the token itself);
slots with position -1 are empty. The same rule serves the plain forward pass and the cache, because both state where
every key stands.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class View:
    """What every layer of one pass has in common, made once before the first."""

    mask_BTS: Any
    """Which keys a query may see."""
    positions_BT: Any = None
    """Where the queries stand, and the keys of the same tokens."""
    positions_BS: Any = None
    """Where the keys stand; -1 for an empty slot."""
    found: Any = None
    """What the position scheme found out about these keys, see `layers.position.mask`."""
    write: Callable | None = field(default=None, metadata={"static": True})
    """Puts new keys and values into the cache of a layer, see `layers.cache.place`; None without a cache."""
    cached_BS: Any = None
    """Where all keys in the cache stand, of which only a few may be among positions_BS; None without a cache."""
    source_mask_BTS: Any = None
    """Which tokens of a source cross-attention may see; None where there is no source."""
    source_BSD: Any = None
    """The source; None where its keys and values are in a cache."""
    chunk: int | None = field(default=None, metadata={"static": True})
    """Queries of a chunk, if rows are cut (window/chunks.py): mask_BTS is then of chunks. None for whole rows."""
    by_offset: bool = field(default=False, metadata={"static": True})
    """Whether the keys S are the window of each query, oldest first (window/offsets.py), and not those of a row."""
    narrow: bool = field(default=False, metadata={"static": True})
    """Whether rows are read side by side (window/narrow.py): keys are those of by_offset, and mask_BTS is not read."""
    training: bool = field(default=False, metadata={"static": True})
    """Whether there is dropout."""


def causal_mask(positions_BT, positions_BS, window=None):
    """Which keys S each query T may see: (B, T, S) bool."""
    offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
    seen_BTS = (offsets_BTS >= 0) & (positions_BS >= 0)[:, None, :]
    return seen_BTS if window is None else seen_BTS & (offsets_BTS < window)


def mask_padding(tokens_BT, lengths_B=None):
    """(Tokens with 0 for what stands beyond a row's length, which of them are real BT); all are without lengths."""
    if lengths_B is None:
        return tokens_BT, jnp.ones(tokens_BT.shape, bool)
    real_BT = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None] < lengths_B[:, None]
    return jnp.where(real_BT, tokens_BT, 0), real_BT
