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

With a cache, a query gathers the keys at its few offsets, and one scan finds the last head's keys for all queries. So a
row is read in time proportional to its length. A step of generation takes one minimum over the cache instead.
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
_NEVER = jnp.iinfo(jnp.int32).max  # a position after all others


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
        from_BT = jnp.where(period_BT > 0, positions_BT - period_BT + 3, _NEVER)
        ahead_BTS = _ahead(from_BT, positions_BT, positions_BS)
        reads_LBTS = jnp.stack(reads) & causal_BTS[None]
        return reads_LBTS.any(0) | ahead_BTS, {"reads": reads_LBTS, "from": from_BT, "itself": itself_BTS}

    def offsets(self, period_BT):
        own_BT, P_BT = jnp.zeros_like(period_BT), period_BT
        reads = own_BT, own_BT + 1, jnp.where(P_BT > 1, P_BT, -1), jnp.where(P_BT > 3, P_BT - 2, -1)
        return jnp.stack(reads, axis=-1)

    def layer(self, view, number):
        return replace(view, mask_BTS=view.found["reads"][number], found=view.found | {"last": number == LAYERS - 1})

    def bias(self, param, view, cfg, dtype):
        table_HO = param("table", one_offset_each, (cfg.n_heads, 2))
        return table_HO[None, :, None, None, 0] + jnp.where(
            view.found["itself"][:, None], 0.0, (table_HO[:, 1] - table_HO[:, 0])[None, :, None, None]
        )

    def wants_key(self):
        return True

    def look(self, y_BTHK, weights_BHTS, k_BSHK, v_BSHK, view, key, cache):
        if cache is not None:  # then each token is a row, and the number of the layer is known before it runs
            from_BT, t_BT = (x.reshape(len(view.cached_BS), -1) for x in (view.found["from"], view.positions_BT))
            keys = cache["key"][:, -1, :, 0], cache["value"][:, -1, :, 0], view.cached_BS
            said_BT = bit_ahead(*keys, from_BT, t_BT) if view.found["last"] else jnp.zeros_like(t_BT)
            return _with_last_head(y_BTHK, said_BT.reshape(-1, 1)), weights_BHTS
        decides_BS, says_BS = k_BSHK[:, :, -1, 0], v_BSHK[:, :, -1, 0]
        ahead_BTS = view.found["last"] & _ahead(view.found["from"], view.positions_BT, view.positions_BS)
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
        return _with_last_head(y_BTHK, said_BT), weights_BHTS.at[:, -1].set(taken_BTS)


def _ahead(from_BT, positions_BT, positions_BS):
    """Which keys are among those of which the last head takes one: (B, T, S)."""
    return causal_mask(positions_BT, positions_BS) & (positions_BS[:, None] >= from_BT[:, :, None])


def bit_ahead(decides_BS, says_BS, cached_BS, from_BT, positions_BT):
    """What the last head reads in a cache, (B, T): the bit of the first key that decides from a position on, or 0.

    cached_BS: where the keys stand, of which a slot has the position of its number modulo S, -1 if it is empty.
    """
    first_BT, S = first_deciding(decides_BS, cached_BS, from_BT), cached_BS.shape[1]
    bit_BT = jnp.where(jnp.take_along_axis(says_BS, first_BT % S, axis=1) > 0, 1.0, -1.0)
    return jnp.where((from_BT <= first_BT) & (first_BT <= positions_BT), bit_BT, 0.0)


def first_deciding(decides_BS, cached_BS, from_BT):
    """Where the first key stands that decides from a position on, (B, T), in time S + T instead of S T.

        next_s = s if decides_s > 0 else next_{s+1}        first_t = next_{from_t}

    If there is none, what is returned stands before from_BT or after all keys.
    """
    at_BS, S = jnp.where(decides_BS > 0, cached_BS, _NEVER), cached_BS.shape[1]
    if from_BT.shape[1] == 1:  # a step of generation needs no more than one minimum, 2.4 times as fast
        return jnp.where(at_BS >= from_BT, at_BS, _NEVER).min(1, keepdims=True)
    oldest_B1 = cached_BS.max(1, keepdims=True) + 1 - S
    slot_BS = (oldest_B1 + jnp.arange(S)[None]) % S  # by position: slots are a ring
    next_BS = jax.lax.cummin(jnp.take_along_axis(at_BS, slot_BS, axis=1), axis=1, reverse=True)
    return jnp.take_along_axis(next_BS, jnp.clip(from_BT - oldest_B1, 0, S - 1), axis=1)


def _with_last_head(y_BTHK, said_BT):
    return y_BTHK.at[:, :, -1].set(0.0).at[:, :, -1, 0].set(said_BT.astype(y_BTHK.dtype))
