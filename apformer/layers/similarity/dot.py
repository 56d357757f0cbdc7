"""q.k (Luong et al. 2015)."""

from jax import Array

from apformer.layers import attention
from apformer.layers.position import Param


def score(param: Param, q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return q.k, (B, H, T, S), in at least float32."""
    return attention.dot(q_BTHK, k_BSHK)
