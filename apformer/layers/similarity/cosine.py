"""g q.k / (|q| |k|) (Graves et al. 2014), with a learned gain g for each head.

The gain starts at sqrt(K), where the scores of random vectors have the spread that q.k / sqrt(K) gives them.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import at_least_float32
from apformer.layers.position import Param
from apformer.layers.similarity import dot


def score(param: Param, q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return the cosine of the angle between query and key times a gain, (B, H, T, S), in at least float32."""
    H, K = q_BTHK.shape[2:]
    gain_H, dtype = param("gain", nn.initializers.constant(K**0.5), (H,)), at_least_float32(q_BTHK.dtype)
    cosine_BHTS = dot.score(param, unit(q_BTHK.astype(dtype)), unit(k_BSHK.astype(dtype)))
    return cosine_BHTS * gain_H[None, :, None, None].astype(dtype)


def unit(x_BTHK: Array) -> Array:
    """Return every vector at length 1; those near 0 are shorter, so that their gradient stays finite."""
    return x_BTHK * jax.lax.rsqrt(jnp.square(x_BTHK).sum(-1, keepdims=True) + 1e-12)
