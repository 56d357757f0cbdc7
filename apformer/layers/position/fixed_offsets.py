"""Positions by a few given offsets: a layer reads the tokens at these offsets back, and no others.

    score(t, s) += table[h, o]       where t - s is the o-th offset; any other token is hidden

Such attention is a learned convolution with gaps (dilated: van den Oord et al. 2016). A token that is not there is
hidden too, and the token itself is always among those that are read. So a layer with similarity none reads, with each
head, a fixed mean of a few tokens, and the logits depend on as many tokens as there are offsets.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from apformer.layers.leaves import POSITION_TABLE
from apformer.layers.masks import causal_mask


@dataclass(frozen=True)
class Scheme:
    """A learned bias for each head and offset."""

    seen_offsets: tuple[int, ...] = (0, 1)
    """How many tokens back each token stands that a layer reads; 0 is the token itself, and has to be there."""

    parameters: ClassVar = {"table": POSITION_TABLE}

    def __post_init__(self):
        seen = self.seen_offsets
        if 0 not in seen or min(seen) < 0 or max(seen) >= 2**31 or len(set(seen)) < len(seen):
            raise ValueError(f"seen_offsets {seen} are not 0 and other whole numbers above it, each given once")

    def check(self, cfg):
        if cfg.window is not None:
            raise ValueError(f"window {cfg.window} hides tokens that position fixed_offsets reads")

    def reach(self, window):
        return max(self.seen_offsets)

    def mask(self, positions_BT, positions_BS, window, found):
        offset_BTS1 = (positions_BT[:, :, None] - positions_BS[:, None, :])[..., None]
        reads_BTSO = offset_BTS1 == jnp.asarray(self.seen_offsets, jnp.int32)[None, None, None]
        reads_BTSO &= causal_mask(positions_BT, positions_BS)[..., None]
        return reads_BTSO.any(-1), reads_BTSO

    def bias(self, param, view, cfg, dtype):
        table_HO = param("table", jax.nn.initializers.normal(1.0), (cfg.n_heads, len(self.seen_offsets)))
        return jnp.einsum("HO,BTSO->BHTS", table_HO, view.found.astype(table_HO.dtype))
