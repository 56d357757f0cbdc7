"""q.k (Luong et al. 2015)."""

import jax.numpy as jnp
from jax import Array

from apformer.layers import at_least_float32
from apformer.layers.position import Param


def score(param: Param, q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return q.k, (B, H, T, S), in at least float32."""
    scores_BHTS = jnp.einsum("BHTK,BHSK->BHTS", q_BTHK.swapaxes(1, 2), k_BSHK.swapaxes(1, 2))
    return scores_BHTS.astype(at_least_float32(q_BTHK.dtype))
