"""Positions in text of terms of equal width: the token itself, the same place a term before, and the span between.

Terms of C characters and a separator repeat every P = C + 1 tokens. P can be read from the text: it is the place of the
first separator, counted from 1. An offset o = t - s then falls into buckets. With `near` = k they are

    local           o = 0 .. k - 1            the token itself and those just before it
    previous term   o = P - k .. P + k - 1    about the same place a term before
    span            k <= o < P - k            what lies between

Each head has a bias for each local and each previous-term bucket. Only the few span heads see the span, and have one
bias for all of it. Where P is so small that two buckets hold an offset, their biases add up. A head learns 3 k or
3 k + 1 numbers, and none depends on P. So a model can continue longer terms than it was trained on. Other heads do not
see the span, because a longer term would draw more of their attention to it by mistake. Before the first separator of a
row P is not known: only local tokens are visible there, and no token depends on later ones.

The place in a term as position: McLeish et al. 2024 (Abacus), Cho et al. 2024 (position coupling), there as embeddings.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers.leaves import POSITION_TABLE
from apformer.layers.masks import causal_mask

_UNKNOWN = jnp.iinfo(jnp.int32).max
_BLIND = -1e9  # a bias that no score makes up for


@dataclass(frozen=True)
class Scheme:
    """A learned bias for each head and bucket; the first `span_heads` heads also see the span."""

    separator: int = 10
    """Token that ends a term."""
    near: int = 1
    """Tokens seen here, the token itself included. Around the same place a term earlier, twice this number is seen."""
    span_heads: int = 0
    """Number of heads that also see all tokens in between."""
    score_noise: float = 0.0
    """Standard deviation of the noise on the span heads' scores, in training only. Each key has one noise value."""
    logit_scale: float = 1.0
    """Factor on the scores of the span heads, after training only."""

    parameters: ClassVar = {"table": POSITION_TABLE, "level": POSITION_TABLE}

    def __post_init__(self):
        if self.near < 1:
            raise ValueError(f"near {self.near} is less than 1")
        if not 0 <= self.score_noise < math.inf:
            raise ValueError(f"score_noise {self.score_noise} is no finite number of at least 0")
        if not 0 < self.logit_scale < math.inf:
            raise ValueError(f"logit_scale {self.logit_scale} is no finite number above 0")

    def check(self, cfg):
        if not 0 <= self.span_heads <= cfg.n_heads:
            raise ValueError(f"span_heads {self.span_heads} is not in 0 to n_heads {cfg.n_heads}")
        if self.span_heads and cfg.similarity in ("cosine", "additive"):
            raise ValueError(f"similarity {cfg.similarity} has no products of queries and keys, which span_heads scale")

    def init_cache(self, batch_size):
        return no_periods(batch_size)

    def read(self, tokens_BT, positions_BT, cache):
        return read_periods(tokens_BT, positions_BT, cache, self.separator)

    def mask(self, positions_BT, positions_BS, window, period_BT):
        buckets_BTSQ = bucketise(positions_BT, positions_BS, period_BT, self.near)
        seen_BTS = buckets_BTSQ[..., : None if self.span_heads else -1].any(-1)
        if window is not None:
            seen_BTS &= causal_mask(positions_BT, positions_BS, window)
        return seen_BTS, buckets_BTSQ

    def offsets(self, period_BT):
        return None if self.span_heads else offsets(period_BT, self.near)

    def bias(self, param, view, cfg, dtype):
        table_HQ = param("table", self.one_bucket_each, (cfg.n_heads, 3 * self.near))
        levels = [param("level", nn.initializers.zeros, (self.span_heads,))] if self.span_heads else []
        blind_H = jnp.full(cfg.n_heads - self.span_heads, _BLIND, dtype)
        level_H = jnp.concatenate([*(level_H.astype(dtype) for level_H in levels), blind_H])
        biases_HQ = jnp.concatenate([table_HQ.astype(dtype), level_H[:, None]], axis=1)
        return jnp.einsum("HQ,BTSQ->BHTS", biases_HQ, view.found.astype(dtype))

    def wants_key(self):
        return self.span_heads > 0 and (self.score_noise > 0 or self.logit_scale != 1)

    def perturb(self, q_BTHK, bias_BHTS, key):
        n = self.span_heads
        if not n:
            return q_BTHK, bias_BHTS
        if key is None:
            return q_BTHK.at[:, :, :n].multiply(self.logit_scale), bias_BHTS.at[:, :n].multiply(self.logit_scale)
        shape_BH1S = (len(bias_BHTS), n, 1, bias_BHTS.shape[-1])
        noise_BH1S = self.score_noise * jax.random.normal(key, shape_BH1S, bias_BHTS.dtype)
        return q_BTHK, bias_BHTS.at[:, :n].add(noise_BH1S)

    def one_bucket_each(self, key, shape_HQ, dtype=jnp.float32):
        """Each head that does not see the span starts by reading one bucket (see relative.one_offset_each)."""
        n_heads, buckets = shape_HQ
        head_H = jnp.arange(n_heads) - self.span_heads
        own_HQ = jax.nn.one_hot((head_H + 1) % buckets, buckets, dtype=dtype)
        own_HQ = jnp.where(head_H[:, None] < 0, 0.0, own_HQ)
        return 6.0 * own_HQ - 3.0 + 0.3 * jax.random.normal(key, shape_HQ, dtype)


def no_periods(batch_size):
    """The cache of `read_periods` for rows of which nothing was read."""
    return {"period": jnp.zeros(batch_size, jnp.int32)}


def read_periods(tokens_BT, positions_BT, cache, separator):
    """(The period known at each token (B, T), the cache afterwards); without a cache rows begin with these tokens."""
    if cache is None:
        period_BT = periods(tokens_BT, positions_BT - positions_BT[:, :1], separator)
    else:
        period_BT = periods(tokens_BT, positions_BT, separator, cache["period"])
    return period_BT, {"period": period_BT[:, -1]}


def periods(tokens_BT, places_BT, separator, period_B=None):
    """The period known at each token, 0 before the first separator: (B, T) int32.

    places_BT: positions counted from 0 at the begin of a row. period_B: what was known before these tokens.
    """
    ends_BT = jnp.where(tokens_BT == separator, places_BT + 1, _UNKNOWN)
    if period_B is not None:
        ends_BT = jnp.minimum(ends_BT, jnp.where(period_B > 0, period_B, _UNKNOWN)[:, None])
    first_BT = jax.lax.cummin(ends_BT, axis=1)
    return jnp.where(first_BT == _UNKNOWN, 0, first_BT)


def offsets(period_BT, near):
    """The offsets that the buckets hold without the span: (B, T, 3 near) int32, each once; -1 for none."""
    local_11O = jnp.arange(near, dtype=jnp.int32)[None, None]
    about_BTO = period_BT[:, :, None] + jnp.arange(-near, near, dtype=jnp.int32)[None, None]
    about_BTO = jnp.where((period_BT[:, :, None] > 0) & (about_BTO >= near), about_BTO, -1)
    local_BTO = jnp.broadcast_to(local_11O, (*period_BT.shape, near))
    return jnp.concatenate([local_BTO, about_BTO], axis=-1)


def bucketise(positions_BT, positions_BS, period_BT, near):
    """Which of 3 near + 1 buckets hold each offset, the last of them the span: bool (B, T, S, Q)."""
    positions_BT = jnp.broadcast_to(positions_BT, period_BT.shape)
    offset_BTS1 = (positions_BT[:, :, None] - positions_BS[:, None, :])[..., None]
    period_BT11 = period_BT[:, :, None, None]
    known_BT11 = period_BT11 > 0
    local_111Q = jnp.arange(near, dtype=jnp.int32)[None, None, None]
    about_111Q = jnp.arange(-near, near, dtype=jnp.int32)[None, None, None]
    matches = (
        offset_BTS1 == local_111Q,
        known_BT11 & (offset_BTS1 == period_BT11 + about_111Q),
        known_BT11 & (near <= offset_BTS1) & (offset_BTS1 < period_BT11 - near),
    )
    return jnp.concatenate(matches, axis=-1) & causal_mask(positions_BT, positions_BS)[..., None]
