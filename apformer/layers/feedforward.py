"""The affine map y = x W + b, and the feed-forward network of two of them.

FFN(x) = act(x W1 + b1) W2 + b2        Vaswani et al. 2017, section 3.3; W is Glorot-initialised (2010)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import Function, derivative, precise


@derivative("product")
def product(x_BTD: Array, W_DF: Array) -> Array:
    """Return x W, (B, T, F)."""
    return jnp.einsum("BTD,DF->BTF", x_BTD, W_DF)


class Linear(nn.Module):
    """Map each vector from D to F numbers: y_BTF = x_BTD W_DF + b_F."""

    features: int
    bias: bool = True
    product: Function = product

    @nn.compact
    def __call__(self, x_BTD: Array) -> Array:
        W_DF = self.param("weight", nn.initializers.xavier_uniform(), (x_BTD.shape[-1], self.features))
        y_BTF = self.product(x_BTD, W_DF)
        return y_BTF + self.param("bias", nn.initializers.zeros, (self.features,))[None, None] if self.bias else y_BTF


@derivative("slope")
def gelu(x: Array) -> Array:
    """Return x Phi(x), with Phi the standard normal distribution function (Hendrycks and Gimpel 2016)."""
    wide = precise(x)
    return (wide * (0.5 + 0.5 * jax.lax.erf(wide * 0.5**0.5))).astype(x.dtype)


ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": gelu,
    "gelu_tanh": derivative("slope")(partial(jax.nn.gelu, approximate=True)),  # what GPT-2 uses
}


class FeedForward(nn.Module):
    """Expand each vector from D to F numbers, apply an activation, named in ACTIVATIONS, and contract it to D again."""

    d_ff: int
    activation: str = "relu"
    product: Function = product

    @nn.compact
    def __call__(self, x_BTD: Array, intermediates: dict[str, Any] | None = None) -> Array:
        """Return (B, T, D). The activations are added to `intermediates` by the name "feedforward"."""
        h_BTF = ACTIVATIONS[self.activation](Linear(self.d_ff, product=self.product, name="expand")(x_BTD))
        if intermediates is not None:
            intermediates["feedforward"] = h_BTF
        return Linear(x_BTD.shape[-1], product=self.product, name="contract")(h_BTF)
