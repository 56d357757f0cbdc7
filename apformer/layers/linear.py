"""The affine map y = x W + b, Glorot-initialised (Glorot and Bengio 2010)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import fast


@fast.derivative(fast.product)
def product(x_BTD: jax.Array, W_DF: jax.Array) -> jax.Array:
    """Return x W, (B, T, F)."""
    return jnp.einsum("BTD,DF->BTF", x_BTD, W_DF)


class Linear(nn.Module):
    """y_BTF = x_BTD W_DF + b_F."""

    features: int
    bias: bool = True

    @nn.compact
    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        W_DF = self.param("weight", nn.initializers.xavier_uniform(), (x_BTD.shape[-1], self.features))
        y_BTF = product(x_BTD, W_DF)
        if self.bias:
            y_BTF = y_BTF + self.param("bias", nn.initializers.zeros, (self.features,))[None, None]
        return y_BTF
