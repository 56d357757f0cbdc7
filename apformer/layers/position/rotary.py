"""Queries and keys are rotated by p in each plane, so that q.k depends on p_q - p_k (Su et al. 2021)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from apformer.layers import at_least_float32
from apformer.layers.position.sinusoidal import angles


@dataclass(frozen=True)
class Scheme:
    """Rotate the plane (x_2i, x_2i+1) of a head by p / 10000^(2i/K). An odd last number is not rotated."""

    def rotate(self, x_BTHK: Array, positions_BT: Array) -> Array:
        K = x_BTHK.shape[-1] // 2 * 2
        angles_BT1I = angles(positions_BT, K, at_least_float32(x_BTHK.dtype))[:, :, None]
        cos, sin = jnp.cos(angles_BT1I).astype(x_BTHK.dtype), jnp.sin(angles_BT1I).astype(x_BTHK.dtype)
        even, odd = x_BTHK[..., 0:K:2], x_BTHK[..., 1::2]
        y_BTHK = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(*x_BTHK.shape[:-1], K)
        return jnp.concatenate([y_BTHK, x_BTHK[..., K:]], axis=-1)
