"""Queries and keys are rotated by p in each plane, so that q.k depends on p_q - p_k (Su et al. 2021)."""

from dataclasses import dataclass

import jax.numpy as jnp

from apformer.layers import at_least_float32
from apformer.layers.position.sinusoidal import angles


@dataclass(frozen=True)
class Scheme:
    """The planes (x_2i, x_2i+1) of a head turn by p / 10000^(2i/K)."""

    def check(self, cfg):
        if (cfg.d_model // cfg.n_heads) % 2:
            raise ValueError(f"rotary positions need an even head width, not {cfg.d_model // cfg.n_heads}")

    def rotate(self, x_BTHK, positions_BT):
        angles_BT1I = angles(positions_BT, x_BTHK.shape[-1], at_least_float32(x_BTHK.dtype))[:, :, None]
        cos, sin = jnp.cos(angles_BT1I).astype(x_BTHK.dtype), jnp.sin(angles_BT1I).astype(x_BTHK.dtype)
        even, odd = x_BTHK[..., 0::2], x_BTHK[..., 1::2]
        return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x_BTHK.shape)
