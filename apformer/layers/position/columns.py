"""Positions for sums in columns: terms of equal width, least significant digit first, after a heading.

A row begins with a heading of a few tokens and a separator. Terms of D digits and a separator then repeat every
P = D + 1 tokens, and P is read off the text: it is the place of the first separator of a term, counted from 1. Of the
term z that follows on y and x, a digit z_j depends on the columns j, j - 1 and j - 2. At z_{j-1} two layers read

    layer 1    0, P, P + 1, the heading     z_{j-1}  x_{j-1}  x_{j-2}
    layer 2    0, P - 1                     what layer 1 says of z_{j-1}, and of x_j:  x_j  y_j  y_{j-1}

and so six tokens and the heading, all that the next digit depends on, whatever P is. A layer has a bias for each head
and each token that it reads. What stands before the heading's separator is read as heading alone. Before the first term
ends P is not known: only the token itself and the heading are visible then. A token is visible to itself always.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp

from apformer.layers.leaves import POSITION_TABLE
from apformer.layers.masks import causal_mask
from apformer.layers.position.periodic import no_periods, periods

LAYERS = 2
OFFSETS = 3  # that layer 1 reads beside the heading


@dataclass(frozen=True)
class Scheme:
    """Three offsets and a heading for the first layer, two offsets for the second."""

    separator: int = 16
    """Token that ends the heading and each term."""
    heading: int = 2
    """Tokens before the first separator, which name what the terms are."""

    parameters: ClassVar = {"table": POSITION_TABLE}

    def __post_init__(self):
        if self.heading < 0:
            raise ValueError(f"heading {self.heading} is less than 0")

    def check(self, cfg):
        if cfg.n_layers != LAYERS:
            raise ValueError(f"n_layers {cfg.n_layers} is not {LAYERS}, which position columns has offsets for")
        if cfg.window is not None:
            raise ValueError(f"window {cfg.window} hides tokens that position columns reads")

    def init_cache(self, batch_size):
        return no_periods(batch_size)

    def read(self, tokens_BT, positions_BT, cache):
        """((the place where a row begins, the period known at each token), the cache)."""
        start_B1 = positions_BT[:, :1] if cache is None else jnp.zeros_like(positions_BT[:, :1])
        place_BT = positions_BT - start_B1 - self.heading - 1  # 0 for the first token of the first term
        tokens_BT = jnp.where(place_BT < 0, -1, tokens_BT)
        period_BT = periods(tokens_BT, place_BT, self.separator, None if cache is None else cache["period"])
        return (start_B1, period_BT), {"period": period_BT[:, -1]}

    def mask(self, positions_BT, positions_BS, window, found):
        start_B1, period_BT = found
        positions_BT = jnp.broadcast_to(positions_BT, period_BT.shape)
        offset_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
        place_B1S, P_BT1 = (positions_BS - start_B1)[:, None], period_BT[:, :, None]
        term_BTS, itself_BTS = (P_BT1 > 0) & (place_B1S >= self.heading), offset_BTS == 0
        named = [(place_B1S == n) & (offset_BTS > 0) for n in range(self.heading)]
        first = (itself_BTS, *(term_BTS & (offset_BTS == o) for o in (P_BT1, P_BT1 + 1)), *named)
        second = (itself_BTS, term_BTS & (offset_BTS == P_BT1 - 1) & ~itself_BTS)
        second += (len(first) - len(second)) * (jnp.zeros_like(itself_BTS),)
        causal_BTS1 = causal_mask(positions_BT, positions_BS)[..., None]
        reads_LBTSQ = jnp.stack([jnp.stack(reads, axis=-1) & causal_BTS1 for reads in (first, second)])
        return reads_LBTSQ.any((0, -1)), reads_LBTSQ

    def layer(self, view, number):
        reads_BTSQ = view.found[number]
        return replace(view, mask_BTS=reads_BTSQ.any(-1), found=reads_BTSQ)

    def bias(self, param, view, cfg, dtype):
        table_HQ = param("table", self._one_token_each, (cfg.n_heads, OFFSETS + self.heading))
        return jnp.einsum("HQ,BTSQ->BHTS", table_HQ, view.found.astype(table_HQ.dtype))

    def _one_token_each(self, key, shape_HQ, dtype=jnp.float32):
        """Each head starts by reading mostly one token (see relative.one_offset_each)."""
        n_heads, reads = shape_HQ
        own_HQ = jax.nn.one_hot(jnp.arange(n_heads) % reads, reads, dtype=dtype)
        return 3.0 * own_HQ + 0.3 * jax.random.normal(key, shape_HQ, dtype)
