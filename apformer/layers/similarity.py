"""Scores of attention other than q.k / sqrt(K), which `attention.py` has; each head for itself.

dot          q.k                          Luong et al. 2015
cosine       g q.k / (|q| |k|)            Graves et al. 2014; g is learned, and starts at sqrt(K), where the scores
                                          of random vectors have the spread that q.k / sqrt(K) gives them
additive     v.tanh(q + k)                Bahdanau et al. 2015, whose W s + U h are our query and key; v is learned
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import at_least_float32


def dot(q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return q.k, (B, H, T, S), in at least float32."""
    return jnp.einsum("BTHK,BSHK->BHTS", q_BTHK, k_BSHK).astype(at_least_float32(q_BTHK.dtype))


def cosine(q_BTHK: Array, k_BSHK: Array, gain_H: Array) -> Array:
    """Return the cosine of the angle between query and key times a gain, (B, H, T, S), in at least float32."""
    dtype = at_least_float32(q_BTHK.dtype)
    return dot(unit(q_BTHK.astype(dtype)), unit(k_BSHK.astype(dtype))) * gain_H[None, :, None, None].astype(dtype)


def unit(x_BTHK: Array) -> Array:
    """Return every vector at length 1; those near 0 are shorter, so that their gradient stays finite."""
    return x_BTHK * jax.lax.rsqrt(jnp.square(x_BTHK).sum(-1, keepdims=True) + 1e-12)


def additive(q_BTHK: Array, k_BSHK: Array, vector_HK: Array) -> Array:
    """Return v.tanh(q + k), (B, H, T, S), in at least float32. Holds B T S H K numbers at once."""
    sums_BTSHK = jnp.tanh(q_BTHK[:, :, None] + k_BSHK[:, None])
    return jnp.einsum("BTSHK,HK->BHTS", sums_BTSHK, vector_HK).astype(at_least_float32(q_BTHK.dtype))


def learned(param: Callable[..., Array], cfg: Any) -> Callable[[Array, Array], Array]:
    """Return the formula of a model.Config with its parameters, which param(name, initializer, shape) makes."""
    K = cfg.d_model // cfg.n_heads
    if cfg.similarity == "cosine":
        return partial(cosine, gain_H=param("gain", nn.initializers.constant(K**0.5), (cfg.n_heads,)))
    if cfg.similarity == "additive":
        return partial(additive, vector_HK=param("vector", nn.initializers.normal(K**-0.5), (cfg.n_heads, K)))
    return dot
