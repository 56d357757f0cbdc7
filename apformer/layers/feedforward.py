"""The position-wise feed-forward network: FFN(x) = act(x W1 + b1) W2 + b2 (Vaswani et al. 2017, section 3.3)."""

from functools import partial

import jax
from flax import linen as nn

from apformer.layers.linear import Linear

ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),  # what GPT-2 uses
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
