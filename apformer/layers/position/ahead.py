"""Positions in terms of any width, most significant digit first: each layer has its offsets, and the last looks ahead.

Terms of D digits and a space repeat every P = D + 1 tokens, and P is read off the text (periodic.py). Three layers read

    layer 1    0 and P                  a token, and the same place a term before
    layer 2    0 and 1                  what layer 1 says of a token, and of the token before it
    layer 3    P - 2                    what layer 2 says of one token
               0 .. P - 3               the last head: what layer 2 says of the first key among these that decides

The last head has no query. Of each key it reads two numbers, the first coordinates of its key and of its value:

    decides_s > 0    this key is taken, unless an older one is
    says_s > 0       what the key says, one bit

Its output is +1 or -1, the bit of the key that is taken, or 0 if none is. So the logits after a token depend on two
things, in terms of any width: one of these three numbers, and what layer 2 says of the token P - 2 back. The second is
a function of four tokens. That needs a model without residuals, whose last layer does not read the last token itself.

In training both are soft: geometric attention (weighting.py) with sigmoid(decides) for a key's share, and
tanh(says / 2), each with noise, so that the numbers learn to keep away from 0. After it they are as hard as above.
Before the first separator of a row P is not known: the layers then read offsets 0 and 1 alone. A query always reads
a key, itself if there is no other (P = 1).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp

from apformer.layers.leaves import POSITION_TABLE
from apformer.layers.masks import causal_mask
from apformer.layers.position.periodic import no_periods, read_periods
from apformer.layers.position.relative import one_offset_each
from apformer.layers.weighting import geometric

LAYERS = 3


@dataclass(frozen=True)
class Scheme:
    """Two offsets for each of two layers, one for the third, whose last head looks ahead."""

    separator: int = 10
    """Token that ends a term."""
    score_noise: float = 0.0
    """Standard deviation of the noise on what keys decide and say, in training only."""

    parameters: ClassVar = {"table": POSITION_TABLE}

    def __post_init__(self):
        if not 0 <= self.score_noise < math.inf:
            raise ValueError(f"score_noise {self.score_noise} is no finite number of at least 0")

    def check(self, cfg):
        if cfg.n_layers != LAYERS:
            raise ValueError(f"n_layers {cfg.n_layers} is not {LAYERS}, which position ahead has offsets for")
        if cfg.n_heads < 2:
            raise ValueError(f"n_heads {cfg.n_heads} is less than 2, and the last head looks ahead")
        if cfg.window is not None:
            raise ValueError(f"window {cfg.window} hides tokens that position ahead reads")

    def init_cache(self, batch_size):
        return no_periods(batch_size)

    def read(self, tokens_BT, positions_BT, cache):
        return read_periods(tokens_BT, positions_BT, cache, self.separator)

    def mask(self, positions_BT, positions_BS, window, period_BT):
        positions_BT = jnp.broadcast_to(positions_BT, period_BT.shape)
        offset_BTS, P_BT1 = positions_BT[:, :, None] - positions_BS[:, None, :], period_BT[:, :, None]
        known_BT1, itself_BTS = P_BT1 > 0, offset_BTS == 0
        reads = (
            itself_BTS | known_BT1 & (offset_BTS == P_BT1),
            itself_BTS | (offset_BTS == 1),
            jnp.where(known_BT1, offset_BTS == jnp.maximum(P_BT1 - 2, 0), itself_BTS),
        )
        causal_BTS = causal_mask(positions_BT, positions_BS)
        ahead_BTS = known_BT1 & (offset_BTS < P_BT1 - 2) & causal_BTS
        reads_LBTS = jnp.stack(reads) & causal_BTS[None]
        return reads_LBTS.any(0) | ahead_BTS, {"reads": reads_LBTS, "ahead": ahead_BTS, "itself": itself_BTS}

    def layer(self, view, number):
        ahead_BTS = view.found["ahead"] & (number == LAYERS - 1)
        return replace(view, mask_BTS=view.found["reads"][number], found=view.found | {"ahead": ahead_BTS})

    def bias(self, param, view, cfg, dtype):
        table_HO = param("table", one_offset_each, (cfg.n_heads, 2))
        return table_HO[None, :, None, None, 0] + jnp.where(
            view.found["itself"][:, None], 0.0, (table_HO[:, 1] - table_HO[:, 0])[None, :, None, None]
        )

    def wants_key(self):
        return True

    def look(self, y_BTHK, weights_BHTS, k_BSHK, v_BSHK, view, key):
        decides_BS, says_BS, ahead_BTS = k_BSHK[:, :, -1, 0], v_BSHK[:, :, -1, 0], view.found["ahead"]
        if key is None:
            deciding_BTS = ahead_BTS & (decides_BS > 0)[:, None]
            taken_BTS = (deciding_BTS & (jnp.cumsum(deciding_BTS, axis=-1) == 1)).astype(y_BTHK.dtype)
            says_BS = jnp.where(says_BS > 0, 1.0, -1.0).astype(y_BTHK.dtype)
        else:
            noise_2BS = self.score_noise * jax.random.normal(key, (2, *decides_BS.shape), decides_BS.dtype)
            scores_BTS = jnp.broadcast_to((decides_BS + noise_2BS[0])[:, None], ahead_BTS.shape)
            taken_BTS = geometric(scores_BTS[:, None], ahead_BTS)[:, 0]
            says_BS = jnp.tanh((says_BS + noise_2BS[1]) / 2)
        said_BT = jnp.einsum("BTS,BS->BT", taken_BTS, says_BS)
        y_BTHK = y_BTHK.at[:, :, -1].set(0.0).at[:, :, -1, 0].set(said_BT)
        return y_BTHK, weights_BHTS.at[:, -1].set(taken_BTS)
