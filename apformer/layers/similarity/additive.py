"""v.tanh(q + k) (Bahdanau et al. 2015), whose W s + U h are our query and key; v is learned."""

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import at_least_float32
from apformer.layers.position import Param


def score(param: Param, q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return v.tanh(q + k), (B, H, T, S), in at least float32. Holds B T S H K numbers at once."""
    H, K = q_BTHK.shape[2:]
    vector_HK = param("vector", nn.initializers.normal(K**-0.5), (H, K))
    sums_BTSHK = jnp.tanh(q_BTHK[:, :, None] + k_BSHK[:, None])
    return jnp.einsum("BTSHK,HK->BHTS", sums_BTSHK, vector_HK).astype(at_least_float32(q_BTHK.dtype))
