"""Normalisation: each token's vector gets a mean of squares near 1, with a learned gain.

    LayerNorm(x) = n(x - mean) * gain + bias        Ba et al. 2016
    RMSNorm(x)   = n(x) * gain                      Zhang and Sennrich 2019

Here n(c) = c / sqrt(mean of c^2 + epsilon), with the mean over the numbers of a vector, in at least float32.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import derivative, precise


def root(c_BTD: Array, epsilon: float) -> Array:
    """Return sqrt(mean of c^2 + epsilon) of each vector, (B, T, 1)."""
    return jnp.sqrt(jnp.square(c_BTD).mean(-1, keepdims=True) + epsilon)


@derivative("layer_norm")
def centred(x_BTD: Array, epsilon: float) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon) of each vector: mean 0, and variance near 1."""
    c_BTD = x_BTD - x_BTD.mean(-1, keepdims=True)
    return c_BTD / root(c_BTD, epsilon)


class LayerNorm(nn.Module):
    """Subtract the mean, divide by the standard deviation, then apply a learned gain and bias."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x_BTD: Array) -> Array:
        D = x_BTD.shape[-1]
        scale_D = self.param("scale", nn.initializers.ones, (D,))
        bias_D = self.param("bias", nn.initializers.zeros, (D,))
        return centred(precise(x_BTD), self.epsilon).astype(x_BTD.dtype) * scale_D[None, None] + bias_D[None, None]


class RMSNorm(nn.Module):
    """Divide by the root of the mean of squares, then apply a learned gain."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x_BTD: Array) -> Array:
        scale_D = self.param("scale", nn.initializers.ones, (x_BTD.shape[-1],))
        x = precise(x_BTD)
        return (x / root(x, self.epsilon)).astype(x_BTD.dtype) * scale_D[None, None]


def norm_of(cfg: Any, name: str | None = None) -> LayerNorm | RMSNorm:
    """Return RMSNorm if cfg.norm is rms, else LayerNorm; if cfg.norm is none, only the final norm is made."""
    return (RMSNorm if cfg.norm == "rms" else LayerNorm)(cfg.norm_epsilon, name=name)
