"""How a transformer knows where a token stands. Every function takes positions as data, so that any length works.

- sinusoidal  PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)); PE(p+k) is a fixed linear map of
  PE(p), a rotation by k in each (sin, cos) plane (Vaswani et al. 2017, section 3.5)
- learned     PE(p) = table[p] (GPT-2)
- rotary      queries and keys are rotated by p in each plane, so that q.k depends on p_q - p_k (Su et al. 2021)
- ALiBi       score(t, s) -= slope_h (t - s), slopes 2^(-8h/H) (Press et al. 2022)
- relative    score(t, s) += table[h, t - s], a free number for each offset, the last one for all beyond (Shaw et al.
  2018 and Raffel et al. 2020, without buckets)
- none        the causal mask alone (Haviv et al. 2022)
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers.precision import at_least_float32


def angles(positions_BT, width, dtype, base=10_000.0):
    """Angle of each position in each of width/2 planes, p / base^(2i/width): (B, T, width/2)."""
    frequencies = base ** (-jnp.arange(0, width, 2, dtype=dtype) / width)
    return positions_BT.astype(dtype)[:, :, None] * frequencies[None, None]


def sinusoidal(positions_BT, d_model, dtype=jnp.float32):
    """The fixed encoding of any positions: (B, T, D), sines and cosines interleaved."""
    angles_BTI = angles(positions_BT, d_model, at_least_float32(dtype))
    pairs_BTI2 = jnp.stack([jnp.sin(angles_BTI), jnp.cos(angles_BTI)], axis=-1)
    return pairs_BTI2.reshape(*positions_BT.shape, -1)[..., :d_model].astype(dtype)


def rotate(x_BTHK, positions_BT):
    """Rotate the planes (x_2i, x_2i+1) of queries or keys by the angle of their position."""
    angles_BT1I = angles(positions_BT, x_BTHK.shape[-1], at_least_float32(x_BTHK.dtype))[:, :, None]
    cos, sin = jnp.cos(angles_BT1I).astype(x_BTHK.dtype), jnp.sin(angles_BT1I).astype(x_BTHK.dtype)
    even, odd = x_BTHK[..., 0::2], x_BTHK[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x_BTHK.shape)


def alibi(positions_BT, positions_BS, n_heads, dtype):
    """The bias -slope_h (t - s) of each head: (B, H, T, S)."""
    slopes_H = 2.0 ** (-8.0 * jnp.arange(1, n_heads + 1, dtype=dtype) / n_heads)
    offsets_BTS = (positions_BT[:, :, None] - positions_BS[:, None, :]).astype(dtype)
    return -slopes_H[None, :, None, None] * offsets_BTS[:, None]


def one_offset_each(key, shape_HO, dtype=jnp.float32):
    """Head h starts by reading offset h + 1, mostly.

    From zero all heads start alike and read every offset, and arithmetic is learned several times more slowly; from
    random numbers, no head may start near an offset that is needed (experiments/README.md).
    """
    n_heads, offsets = shape_HO
    own_HO = jax.nn.one_hot((jnp.arange(n_heads) + 1) % offsets, offsets, dtype=dtype)
    return 3.0 * own_HO + 0.3 * jax.random.normal(key, shape_HO, dtype)


class RelativeBias(nn.Module):
    """A learned bias for each head and offset t - s, clipped to the table: (B, H, T, S)."""

    n_heads: int
    offsets: int

    @nn.compact
    def __call__(self, positions_BT, positions_BS):
        table_HO = self.param("table", one_offset_each, (self.n_heads, self.offsets))
        offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
        return jnp.moveaxis(table_HO[:, jnp.clip(offsets_BTS, 0, self.offsets - 1)], 0, 1)


class LearnedPosition(nn.Module):
    """PE(p) = table_PD[p] for positions below max_len: (B, T, D)."""

    max_len: int
    d_model: int

    @nn.compact
    def __call__(self, positions_BT):
        std = self.d_model**-0.5  # the size of the token embedding it is added to
        table_PD = self.param("table", nn.initializers.normal(std), (self.max_len, self.d_model))
        return jnp.take(table_PD, positions_BT, axis=0, mode="clip")
