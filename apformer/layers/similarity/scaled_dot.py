"""q.k / sqrt(K) (Vaswani et al. 2017), which `attention.py` has."""

from jax import Array

from apformer.layers import attention
from apformer.layers.position import Param


def score(param: Param, q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return q.k / sqrt(K), (B, H, T, S), in at least float32."""
    return attention.scaled_dot(q_BTHK, k_BSHK)
