"""The affine map y = x W + b, Glorot-initialised (Glorot & Bengio 2010).

    y = x W,        dL/dx = dL/dy W^T,        dL/dW = x^T dL/dy

`product` is x W. For wide matrices, XLA's programs for a CPU take up to twice as long for x^T dL/dy as for x W: it sums
over the rows of both. So there `product` first writes the transpose of the narrower of the two.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn


class Linear(nn.Module):
    """y_BTF = x_BTD W_DF + b_F."""

    features: int
    bias: bool = True

    @nn.compact
    def __call__(self, x_BTD):
        W_DF = self.param("weight", nn.initializers.xavier_uniform(), (x_BTD.shape[-1], self.features))
        y_BTF = product(x_BTD, W_DF)
        if self.bias:
            y_BTF = y_BTF + self.param("bias", nn.initializers.zeros, (self.features,))[None, None]
        return y_BTF


WIDE = 128  # of the narrower of two matrices; below, the plain product takes as long


@jax.custom_jvp
def product(x_BTD, W_DF):
    """x W, (B, T, F). Its value and its derivatives are those of `plain`; for these, a CPU has a program of its own."""
    return plain(x_BTD, W_DF)


def plain(x_BTD, W_DF):
    """x W as its equation: (B, T, F)."""
    return jnp.einsum("BTD,DF->BTF", x_BTD, W_DF)


@product.defjvp
def _derivative(primals, tangents):
    (x_BTD, W_DF), (dx_BTD, dW_DF) = primals, tangents
    if min(W_DF.shape) < WIDE:
        by_weights_BTF = plain(x_BTD, dW_DF)
    else:
        by_weights_BTF = jax.lax.platform_dependent(x_BTD, dW_DF, cpu=_transposed, default=plain)
    return plain(x_BTD, W_DF), plain(dx_BTD, W_DF) + by_weights_BTF


def _transposed(x_BTD, dW_DF):
    """x dW, written so that its gradient by dW is a product of a matrix that was transposed and one that was not.

    Without the barriers XLA would make the transposition a part of the product again.
    """
    written = jax.lax.optimization_barrier
    (*shape, D), F = x_BTD.shape, dW_DF.shape[1]
    x_BD = x_BTD.reshape(-1, D)
    if D <= F:
        return jnp.einsum("DB,DF->BF", written(x_BD.T), dW_DF).reshape(*shape, F)
    return written(jnp.einsum("FD,BD->FB", written(dW_DF.T), x_BD)).T.reshape(*shape, F)
