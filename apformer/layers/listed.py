"""Blocks as generation reads them: a list of layers, with transposed matrices, and attention with the heads first.

    y = x W = (W^T x^T)^T

A scan would copy each layer out of the stack for every token. And with few rows x, the time of a product is that of
reading W. XLA's product on a CPU reads W^T in the order of memory, but first copies W into another order.
"""

from functools import partial
from math import prod
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers import Function, Params, at_least_float32, attention, feedforward, leaves
from apformer.layers.fast import rows_of
from apformer.layers.masks import View

MOST_ROWS = 128  # of x: with more, the plain product is as fast


def unstack(params: Params) -> Params:
    """Return the parameters of a decoder with its blocks as a list of layers; unstacked ones are returned unchanged."""
    if isinstance(params["blocks"], list) or "transposed" in params["blocks"]:
        return params
    n_layers = len(jax.tree.leaves(params["blocks"])[0])
    blocks = [jax.tree.map(itemgetter(layer), params["blocks"]) for layer in range(n_layers)]
    return params | {"blocks": blocks}


def unstack_transposed(params: Params) -> Params:
    """Return the parameters of a decoder with its blocks as {"transposed": list of layers with transposed matrices}."""
    blocks = unstack(params)["blocks"]
    if "transposed" in blocks:
        return params
    return params | {"blocks": {"transposed": [_transpose(layer, "inputs") for layer in blocks]}}


def layers(params: Params, view: View) -> tuple[list[Params], View]:
    """Return the layers of a decoder, whatever the form of its blocks, and the view to read them with."""
    blocks, multiply = unstack(params)["blocks"], feedforward.product
    if "transposed" in blocks:
        # XLA finds that this transposition undoes the other, and reads the stored matrices.
        blocks, multiply = [_transpose(layer, "outputs") for layer in blocks["transposed"]], product
    mix = view.faster[1] if view.faster else attend
    by_heads = partial(attention.project, product=multiply), mix, partial(attention.join, product=multiply)
    return blocks, view._replace(faster=(*by_heads, multiply))


def _transpose(layer: Params, first: str) -> Params:
    """Return a layer with its matrices transposed. first: "inputs" or "outputs", whose axes come first in `layer`."""

    def transpose(path: Any, W: Array) -> Array:
        role = leaves.role(path, W.ndim)
        axes = len(getattr(role, first))
        if not axes or len(role.inputs + role.outputs) != W.ndim:
            return W
        before, after = W.shape[:axes], W.shape[axes:]
        return W.reshape(prod(before), -1).T.reshape(*after, *before)

    return jax.tree.map_with_path(transpose, layer)


def scaled_dot(q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return the scores of `attention.scaled_dot`, for keys that lie in the order (B, H, S, K)."""
    dtype = at_least_float32(q_BTHK.dtype)
    scores_BHTS = jnp.einsum("BHTK,BHSK->BHTS", q_BTHK.swapaxes(1, 2), k_BSHK.swapaxes(1, 2)).astype(dtype)
    return scores_BHTS * jnp.asarray(q_BTHK.shape[-1] ** -0.5, dtype)


def attend(
    q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask_BTS: Array, bias_BHTS: Array | None = None,
    sink_H: Array | None = None, compare: Function = scaled_dot
) -> tuple[Array, Array]:  # fmt: skip
    """Return the results of `attention.attend`, for keys and values that lie in the order (B, H, S, K).

    If batch and heads were not the first axes of both products, XLA for a CPU would copy the cache for each token.
    """
    scores_BHTS = compare(q_BTHK, k_BSHK)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS.astype(scores_BHTS.dtype)
    weights_BHTS = attention.softmax(scores_BHTS, mask_BTS, sink_H).astype(v_BSHK.dtype)
    return jnp.einsum("BHTS,BHSK->BHTK", weights_BHTS, v_BSHK.swapaxes(1, 2)).swapaxes(1, 2), weights_BHTS


def product(x_BTD: Array, W_DF: Array) -> Array:
    """Return x W, (B, T, F), of a W whose transpose is stored."""
    if not 0 < rows_of(x_BTD, W_DF) <= MOST_ROWS:
        return feedforward.product(x_BTD, W_DF)
    return jax.lax.platform_dependent(x_BTD, W_DF, cpu=_by_outputs, default=feedforward.product)


def _by_outputs(x_BTD: Array, W_DF: Array) -> Array:
    """Compute (W^T x^T)^T. The barrier keeps XLA from computing x W instead."""
    (B, T, D), F = x_BTD.shape, W_DF.shape[1]
    y_FN = jnp.einsum("FD,ND->FN", W_DF.T, x_BTD.reshape(B * T, D))
    return jax.lax.optimization_barrier(y_FN).T.reshape(B, T, F)
