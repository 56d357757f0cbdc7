"""The position-wise feed-forward network: FFN(x) = act(x W1 + b1) W2 + b2 (Vaswani et al. 2017, section 3.3)."""

from functools import partial

import jax
from flax import linen as nn

from apformer.layers import at_least_float32, fast
from apformer.layers.linear import Linear


@fast.derivative(fast.slope)
def gelu(x: jax.Array) -> jax.Array:
    """Return x times the chance that a standard normal number is below x (Hendrycks and Gimpel 2016)."""
    wide = x.astype(at_least_float32(x.dtype))
    return (wide * (0.5 + 0.5 * jax.lax.erf(wide * 0.5**0.5))).astype(x.dtype)


ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": gelu,
    "gelu_tanh": fast.derivative(fast.slope)(partial(jax.nn.gelu, approximate=True)),  # what GPT-2 uses
}


class FeedForward(nn.Module):
    """Expand each vector from D to F numbers, apply the activation, and contract it to D again."""

    d_ff: int
    activation: str = "relu"

    @nn.compact
    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        h_BTF = ACTIVATIONS[self.activation](Linear(self.d_ff, name="expand")(x_BTD))
        return Linear(x_BTD.shape[-1], name="contract")(h_BTF)
