"""Scores of attention: the similarity of each query and key, each head for itself.

scaled_dot   q.k / sqrt(K)                Vaswani et al. 2017, section 3.2.1
dot          q.k                          Luong et al. 2015
cosine       g q.k / (|q| |k|)            Graves et al. 2014; g is learned, and starts at sqrt(K), where the scores
                                          of random vectors have the spread that scaled_dot gives them
additive     v.tanh(q + k)                Bahdanau et al. 2015, whose W s + U h are our query and key; v is learned
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import at_least_float32


def compare(
    q_BTHK: Array, k_BSHK: Array, similarity: str = "scaled_dot", gain_H: Any = None, vector_HK: Any = None
) -> Array:
    """Return the scores, (B, H, T, S), in at least float32.

    gain_H is g of cosine, and vector_HK is v of additive, which holds B T S H K numbers at once.
    """
    dtype = at_least_float32(q_BTHK.dtype)
    if similarity == "additive":
        sums_BTSHK = jnp.tanh(q_BTHK[:, :, None] + k_BSHK[:, None])
        return jnp.einsum("BTSHK,HK->BHTS", sums_BTSHK, vector_HK).astype(dtype)
    if similarity == "cosine":
        q_BTHK, k_BSHK = unit(q_BTHK.astype(dtype)), unit(k_BSHK.astype(dtype))
    scores_BHTS = jnp.einsum("BTHK,BSHK->BHTS", q_BTHK, k_BSHK).astype(dtype)
    if similarity == "cosine":
        return scores_BHTS * gain_H[None, :, None, None].astype(dtype)
    return scores_BHTS if similarity == "dot" else scores_BHTS * jnp.asarray(q_BTHK.shape[-1] ** -0.5, dtype)


def unit(x_BTHK: Array) -> Array:
    """Return every vector at length 1; those near 0 are shorter, so that their gradient stays finite."""
    return x_BTHK * jax.lax.rsqrt(jnp.square(x_BTHK).sum(-1, keepdims=True) + 1e-12)


def parameters(param: Callable[..., Array], similarity: str, n_heads: int, width: int) -> dict[str, Any]:
    """Make the parameters of a similarity by param(name, initializer, shape), as arguments of `compare`."""
    if similarity == "cosine":
        return {"gain_H": param("gain", nn.initializers.constant(width**0.5), (n_heads,))}
    if similarity == "additive":
        return {"vector_HK": param("vector", nn.initializers.normal(width**-0.5), (n_heads, width))}
    return {}
