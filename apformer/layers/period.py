"""Positions in text of terms of equal width: the token itself, the same place a term before, and what lies between.

Terms of D characters and a separator repeat every P = D + 1 tokens, and P can be read from the text: it is the place of
the first separator, counted from 1. An offset o = t - s is then described by what it is near to, for a window of k:

    near      o = 0 .. k - 1            the token itself and those just before it
    aligned   o = P - k .. P + k - 1    about the same place a term before
    between   k <= o < P - k            visible to the heads that look between

Each head has a bias for each near and each aligned offset, and the few heads that look between have one for all that is
between; where P is so small that two descriptions fit, their biases add up. These are 3 k or 3 k + 1 numbers a head for
terms of any width, and none depends on P. So what is learned of terms of few digits is said of terms of many. Other
heads do not see between, lest they read the more of it by mistake the longer a term is. Before the first separator of a
row P is not known: only what is near is visible there, and no token is described by what comes after it.

The place in a term as position: McLeish et al. 2024 (Abacus), Cho et al. 2024 (position coupling), there as embeddings.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

_UNKNOWN = jnp.iinfo(jnp.int32).max
_BLIND = -1e9  # a bias that no score makes up for


def periods(tokens_BT, positions_BT, separator, period_B=None):
    """The period known at each token, 0 before the first separator: (B, T) int32.

    positions_BT: 0 where a row begins. period_B: what was known before these tokens.
    """
    ends_BT = jnp.where(tokens_BT == separator, positions_BT + 1, _UNKNOWN)
    if period_B is not None:
        ends_BT = jnp.minimum(ends_BT, jnp.where(period_B > 0, period_B, _UNKNOWN)[:, None])
    first_BT = jax.lax.cummin(ends_BT, axis=1)
    return jnp.where(first_BT == _UNKNOWN, 0, first_BT)


def describe(positions_BT, positions_BS, period_BT, near):
    """Which of 3 near + 1 descriptions fit each offset, the last of them between: bool (B, T, S, C)."""
    positions_BT = jnp.broadcast_to(positions_BT, period_BT.shape)
    offset_BTS1 = (positions_BT[:, :, None] - positions_BS[:, None, :])[..., None]
    period_BT11 = period_BT[:, :, None, None]
    known_BT11 = period_BT11 > 0
    near_111C = jnp.arange(near, dtype=jnp.int32)[None, None, None]
    about_111C = jnp.arange(-near, near, dtype=jnp.int32)[None, None, None]
    fits = (
        offset_BTS1 == near_111C,
        known_BT11 & (offset_BTS1 == period_BT11 + about_111C),
        known_BT11 & (near <= offset_BTS1) & (offset_BTS1 < period_BT11 - near),
    )
    seen_BTS1 = (offset_BTS1 >= 0) & (positions_BS >= 0)[:, None, :, None]
    return jnp.concatenate(fits, axis=-1) & seen_BTS1


class PeriodicBias(nn.Module):
    """A learned bias for each head and description: (B, H, T, S); the first `look_between` heads look between."""

    n_heads: int
    look_between: int

    @nn.compact
    def __call__(self, fits_BTSC):
        table_HC = self.param("table", self.one_description_each, (self.n_heads, fits_BTSC.shape[-1] - 1))
        levels = [self.param("level", nn.initializers.zeros, (self.look_between,))] if self.look_between else []
        blind_H = jnp.full(self.n_heads - self.look_between, _BLIND, table_HC.dtype)
        level_H = jnp.concatenate([*levels, blind_H])
        biases_HC = jnp.concatenate([table_HC, level_H[:, None]], axis=1)
        return jnp.einsum("HC,BTSC->BHTS", biases_HC, fits_BTSC.astype(table_HC.dtype))

    def one_description_each(self, key, shape_HC, dtype=jnp.float32):
        """Each head that does not look between starts by reading one description (see position.one_offset_each)."""
        n_heads, descriptions = shape_HC
        head_H = jnp.arange(n_heads) - self.look_between
        own_HC = jax.nn.one_hot((head_H + 1) % descriptions, descriptions, dtype=dtype)
        own_HC = jnp.where(head_H[:, None] < 0, 0.0, own_HC)
        return 6.0 * own_HC - 3.0 + 0.3 * jax.random.normal(key, shape_HC, dtype)
