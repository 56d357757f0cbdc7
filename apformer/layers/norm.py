"""Each token's vector, brought to a size that does not depend on what the layers before made of it.

LayerNorm(x) = n(x - mean) * gain + bias        Ba et al. 2016
RMSNorm(x)   = n(x) * gain                      Zhang and Sennrich 2019

    n(c) = c / r,        r = sqrt(mean of c^2 + epsilon)

The means are over the numbers of one vector. With u = dx / r the derivative is

    dn = u - mean of u - n (mean of n u)        without "- mean of u" for RMSNorm

It divides first, so the gradient, which computes this backwards, divides last. XLA's programs for a CPU write a
quotient once. Sums and products they compute again for each operation that reads them, through all layers above.
"""

from functools import partial

import jax
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
        y_BTD = centred(x, self.epsilon).astype(x_BTD.dtype) * scale_D[None, None]
        return y_BTD if bias_D is None else y_BTD + bias_D[None, None]


class RMSNorm(nn.Module):
    """LayerNorm that leaves the mean where it is; the mean of squares in at least float32."""

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x_BTD):
        scale_D = self.param("scale", nn.initializers.ones, (x_BTD.shape[-1],))
        x = x_BTD.astype(at_least_float32(x_BTD.dtype))
        return scaled(x, self.epsilon).astype(x_BTD.dtype) * scale_D[None, None]


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def centred(x_BTD, epsilon):
    """n(x - mean): every vector with the mean 0, and the mean of its squares near 1."""
    c_BTD = x_BTD - x_BTD.mean(-1, keepdims=True)
    return c_BTD / _root(c_BTD, epsilon)


@centred.defjvp
def _centred_derivative(epsilon, primals, tangents):
    (x_BTD,), (dx_BTD,) = primals, tangents
    r_BT1 = _root(x_BTD - x_BTD.mean(-1, keepdims=True), epsilon)
    n_BTD, u_BTD = centred(x_BTD, epsilon), dx_BTD / r_BT1
    return n_BTD, u_BTD - u_BTD.mean(-1, keepdims=True) - n_BTD * (n_BTD * u_BTD).mean(-1, keepdims=True)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def scaled(x_BTD, epsilon):
    """n(x): every vector with the mean of its squares near 1."""
    return x_BTD / _root(x_BTD, epsilon)


@scaled.defjvp
def _scaled_derivative(epsilon, primals, tangents):
    (x_BTD,), (dx_BTD,) = primals, tangents
    n_BTD, u_BTD = scaled(x_BTD, epsilon), dx_BTD / _root(x_BTD, epsilon)
    return n_BTD, u_BTD - n_BTD * (n_BTD * u_BTD).mean(-1, keepdims=True)


def _root(c_BTD, epsilon):
    return jnp.sqrt(jnp.square(c_BTD).mean(-1, keepdims=True) + epsilon)
