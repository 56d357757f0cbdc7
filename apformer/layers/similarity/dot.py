"""q.k (Luong et al. 2015)."""

import jax.numpy as jnp
from jax import Array

from apformer.layers import at_least_float32
from apformer.layers.position import Param


def score(param: Param, q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return q.k, (B, H, T, S), in at least float32."""
    return jnp.einsum("BTHK,BSHK->BHTS", q_BTHK, k_BSHK).astype(at_least_float32(q_BTHK.dtype))
