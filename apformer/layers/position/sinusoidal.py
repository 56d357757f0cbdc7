"""PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)), added to the embedding.

PE(p+k) is a fixed linear map of PE(p): a rotation by k in each (sin, cos) plane (Vaswani et al. 2017, section 3.5).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers import at_least_float32
from apformer.layers.position import Param


@dataclass(frozen=True)
class Scheme:
    """A fixed encoding of any position."""

    def embed(self, param: Param, x_BTD: Array, positions_BT: Array, max_len: int) -> Array:
        return x_BTD + encode(positions_BT, x_BTD.shape[-1], x_BTD.dtype)


def encode(positions_BT: Array, d_model: int, dtype: Any = jnp.float32) -> Array:
    """Return the encoding of any positions, (B, T, D), sines and cosines interleaved."""
    angles_BTI = angles(positions_BT, d_model, at_least_float32(dtype))
    pairs_BTI2 = jnp.stack([jnp.sin(angles_BTI), jnp.cos(angles_BTI)], axis=-1)
    return jax.lax.collapse(pairs_BTI2, 2)[..., :d_model].astype(dtype)


def angles(positions_BT: Array, width: int, dtype: Any) -> Array:
    """Return the angle of each position in each of width/2 planes, p / 10000^(2i/width), (B, T, I)."""
    frequencies = 10_000.0 ** (-jnp.arange(0, width, 2, dtype=dtype) / width)
    return positions_BT.astype(dtype)[:, :, None] * frequencies[None, None]
