"""The position-wise feed-forward network: FFN(x) = act(x W1 + b1) W2 + b2 (Vaswani et al. 2017, section 3.3)."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import at_least_float32
from apformer.layers.linear import Linear


def with_slope(function):
    """The same function of single numbers, with the derivative dy = slope dx.

    The slope is computed with y. So a training step keeps it alone, and not each part that its equation consists of.
    """
    own = jax.custom_jvp(function)

    @own.defjvp
    def derivative(primals, tangents):
        (x,), (dx,) = primals, tangents
        y, slope = jax.jvp(function, (x,), (jnp.ones_like(x),))
        return y, slope * dx

    return own


def gelu(x):
    """x times the chance that a standard normal number is below x (Hendrycks and Gimpel 2016), in at least float32."""
    wide = x.astype(at_least_float32(x.dtype))
    return (wide * (0.5 + 0.5 * jax.lax.erf(wide * 0.5**0.5))).astype(x.dtype)


ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": with_slope(gelu),
    "gelu_tanh": with_slope(partial(jax.nn.gelu, approximate=True)),  # what GPT-2 uses
}


class FeedForward(nn.Module):
    """D -> F -> D."""

    d_ff: int
    activation: str = "relu"
    bias: bool = True

    @nn.compact
    def __call__(self, x_BTD):
        h_BTF = ACTIVATIONS[self.activation](Linear(self.d_ff, self.bias, name="expand")(x_BTD))
        return Linear(x_BTD.shape[-1], self.bias, name="contract")(h_BTF)
