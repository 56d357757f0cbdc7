"""Derivatives that a CPU computes faster than those that JAX derives; values and derivatives are the same.

The plain functions stand in their own files, and name a rule of this file by `layers.derivative`. XLA's programs for a
CPU write a quotient to memory once, but compute sums and products again for each operation that reads them. So tangents
divide first, and the gradients, which run backwards, divide last.

A rule(plain, primals, tangents) -> (value, tangent) is what `jax.custom_jvp` wants. It serves forward mode, reverse
mode, second derivatives and `vmap`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, export

from apformer.layers.attention import weighted_sum
from apformer.layers.norm import root

WIDE = 128  # least width of the narrower of two matrices: below it, the plain product is as fast
FEW = 4  # least rows of x: with 2 or 3, and members under vmap, jaxlib 0.7.2 aborts on the transposed product


def slope(plain: Any, primals: Any, tangents: Any) -> Any:
    """Derive a function of single numbers: dy = slope dx. The slope is computed with y, and saved for the gradient."""
    (x,), (dx,) = primals, tangents
    y, slope = jax.jvp(plain, (x,), (jnp.ones_like(x),))
    return y, slope * dx


def product(plain: Any, primals: Any, tangents: Any) -> Any:
    """Derive x W. On a CPU the gradient of a wide W uses an explicit transpose of the narrower matrix."""
    (x_BTD, W_DF), (dx_BTD, dW_DF) = primals, tangents
    if rows_of(x_BTD, W_DF) < FEW:
        by_weights_BTF = plain(x_BTD, dW_DF)
    else:
        by_weights_BTF = jax.lax.platform_dependent(x_BTD, dW_DF, cpu=_transposed, default=plain)
    return plain(x_BTD, W_DF), plain(dx_BTD, W_DF) + by_weights_BTF


def rows_of(x_BTD: Array, W_DF: Array) -> int:
    """Return the number of rows of x; 0 if it is symbolic or W is narrow, so that the plain product is computed."""
    rows = x_BTD.size // len(W_DF)
    return 0 if min(W_DF.shape) < WIDE or export.is_symbolic_dim(rows) else rows


def _transposed(x_BTD: Array, dW_DF: Array) -> Array:
    """Compute x dW so that its gradient by dW multiplies one transposed matrix with one that is not.

    Without the barriers XLA would make the transposition a part of the product again.
    """
    written = jax.lax.optimization_barrier
    (*shape, D), F = x_BTD.shape, dW_DF.shape[1]
    x_BD = x_BTD.reshape(-1, D)
    if D <= F:
        return jnp.einsum("DB,DF->BF", written(x_BD.T), dW_DF).reshape(*shape, F)
    return written(jnp.einsum("FD,BD->FB", written(dW_DF.T), x_BD)).T.reshape(*shape, F)


def layer_norm(plain: Any, primals: Any, tangents: Any) -> Any:
    """Derive n = c / r, c = x - mean(x), r = sqrt(mean(c^2) + epsilon).

    With u = dx / r: dn = u - mean(u) - n mean(n u).
    """
    (x_BTD, epsilon), (dx_BTD, _) = primals, tangents
    r_BT1 = root(x_BTD - x_BTD.mean(-1, keepdims=True), epsilon)
    n_BTD, u_BTD = plain(x_BTD, epsilon), dx_BTD / r_BT1
    return n_BTD, u_BTD - u_BTD.mean(-1, keepdims=True) - n_BTD * (n_BTD * u_BTD).mean(-1, keepdims=True)


def softmax_sum(plain: Any, primals: Any, tangents: Any) -> Any:
    """Derive y = sum_s w_s v_s with w = softmax(scores): dy = sum_s w_s ds_s v_s - (sum_s w_s ds_s) y + sum_s w_s dv_s.

    The gradient of the equations would sum weight times derivative over the keys, for each query. This one takes
    sum_k dy_k y_k instead, which is as many numbers as a head is wide.
    """
    (scores_BHTS, mask_BTS, v_BSHK), (dscores_BHTS, _, dv_BSHK) = primals, tangents
    y_BTHK, precise_BHTS = plain(scores_BHTS, mask_BTS, v_BSHK)
    weights_BHTS = precise_BHTS.astype(v_BSHK.dtype)
    w_ds_BHTS = jnp.where(mask_BTS[:, None], precise_BHTS * dscores_BHTS, 0.0)
    total_BHT1 = w_ds_BHTS.sum(-1, keepdims=True)
    less_BTHK = total_BHT1.swapaxes(1, 2) * y_BTHK.astype(total_BHT1.dtype)
    dy_BTHK = weighted_sum(w_ds_BHTS.astype(v_BSHK.dtype), v_BSHK) - less_BTHK.astype(v_BSHK.dtype)
    dweights_BHTS = w_ds_BHTS - precise_BHTS * total_BHT1
    return (y_BTHK, precise_BHTS), (dy_BTHK + weighted_sum(weights_BHTS, dv_BSHK), dweights_BHTS)
