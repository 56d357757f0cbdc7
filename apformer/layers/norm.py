"""Each token's vector, brought to a size that does not depend on what the layers before made of it.

LayerNorm(x) = (x - mean) / sqrt(variance + epsilon) * gain + bias        Ba et al. 2016
RMSNorm(x)   = x / sqrt(mean of x^2 + epsilon) * gain                     Zhang and Sennrich 2019
"""

import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import at_least_float32


class LayerNorm(nn.Module):
    """Statistics in at least float32, the variance of centred numbers."""

    epsilon: float = 1e-5
    bias: bool = True

    @nn.compact
    def __call__(self, x_BTD):
        D = x_BTD.shape[-1]
        scale_D = self.param("scale", nn.initializers.ones, (D,))
        bias_D = self.param("bias", nn.initializers.zeros, (D,)) if self.bias else None
        x = x_BTD.astype(at_least_float32(x_BTD.dtype))
        x = x - x.mean(-1, keepdims=True)
        x = x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        y_BTD = x.astype(x_BTD.dtype) * scale_D[None, None]
        return y_BTD if bias_D is None else y_BTD + bias_D[None, None]


class RMSNorm(nn.Module):
    """LayerNorm that leaves the mean where it is; the mean of squares in at least float32."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x_BTD):
        scale_D = self.param("scale", nn.initializers.ones, (x_BTD.shape[-1],))
        x = x_BTD.astype(at_least_float32(x_BTD.dtype))
        x = x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        return x.astype(x_BTD.dtype) * scale_D[None, None]
