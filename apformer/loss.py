"""Softmax and cross-entropy as one function, and its gradient.

    nats_t = log sum_v exp(z_v) - z_target          loss = sum_t w_t nats_t / sum_t w_t
    d loss / d z = w_t (softmax(z) - onehot(target)) / sum_t w_t

With smoothed labels (Szegedy et al. 2016) a share e of each target is spread over the whole vocabulary:

    nats_t = log sum_v exp(z_v) - (1 - e) z_target - e mean_v z_v

Softmax and cross-entropy as one function are stable: no exponential can overflow, and the gradient needs no division
by a probability. optax leaves the weights, and infinities where a weight is 0, to the caller.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers import precise


def token_nats(logits_BTV: Array, targets_BT: Array, smoothing: float = 0.0) -> Array:
    """Return the cross-entropy of each token in nats, (B, T), in at least float32. smoothing: share e of the label."""
    logits_BTV = precise(logits_BTV)
    target_BT = jnp.take_along_axis(logits_BTV, targets_BT[:, :, None], axis=-1)[:, :, 0]
    if smoothing:
        target_BT = (1 - smoothing) * target_BT + smoothing * logits_BTV.mean(-1)
    return jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT


@partial(jax.custom_vjp[Array], nondiff_argnums=(3,))
def cross_entropy(logits_BTV: Array, targets_BT: Array, weights_BT: Array, smoothing: float = 0.0) -> Array:
    """Return the weighted mean cross-entropy of the tokens, in nats, a scalar. Differentiable in the logits alone.

    Args:
        logits_BTV: Logits.
        targets_BT: Tokens to predict, integers.
        weights_BT: Weight of each token, 0 or more. Tokens of weight 0 (padding) are ignored, whatever their logits; if
            all weights are 0, so is the loss.
        smoothing: Share of each label that is spread over the vocabulary, a Python number.
    """
    return _forward(logits_BTV, targets_BT, weights_BT, smoothing)[0]


def _forward(logits_BTV: Array, targets_BT: Array, weights_BT: Array, smoothing: float) -> tuple:
    # Selected, not multiplied: padding may hold anything, and 0 times infinity is not 0.
    nats_BT = jnp.where(weights_BT > 0, token_nats(logits_BTV, targets_BT, smoothing), 0.0)
    weights_BT = jnp.broadcast_to(weights_BT, nats_BT.shape).astype(nats_BT.dtype)
    weights_BT = weights_BT / jnp.maximum(weights_BT.sum(), jnp.finfo(nats_BT.dtype).tiny)
    return (nats_BT * weights_BT).sum(), (logits_BTV, targets_BT, weights_BT)


def _backward(smoothing: float, saved: tuple, cotangent: Array) -> tuple:
    logits_BTV, targets_BT, weights_BT = saved
    softmax_BTV = jax.nn.softmax(logits_BTV.astype(weights_BT.dtype), axis=-1)
    V = logits_BTV.shape[-1]
    label_BTV = jax.nn.one_hot(targets_BT, V, dtype=weights_BT.dtype)
    if smoothing:
        label_BTV = (1 - smoothing) * label_BTV + smoothing / V
    weights_BT1 = weights_BT[:, :, None]  # selected, not multiplied, as in _forward
    gradient_BTV = jnp.where(weights_BT1 > 0, cotangent * weights_BT1 * (softmax_BTV - label_BTV), 0.0)
    return gradient_BTV.astype(logits_BTV.dtype), None, None


cross_entropy.defvjp(_forward, _backward)


def next_token_loss(
    params: dict, batch: Any, key: Array | None, cfg: Any, *, apply: Callable, measure: Callable | None = None
) -> tuple[Array, dict]:
    """Return (loss, metrics): the weighted cross-entropy of each token after the first, given those before it.

    Args:
        params: Parameters of the model.
        batch: A `tasks.batch.Batch`, or another object with `tokens_BT` and `weights_BT`.
        key: Randomness of dropout, or None.
        cfg: Config of the model.
        apply: Function `apply` of the model.
        measure: Function (logits_BTV, batch) -> metrics, which are added to "loss", or replace it. logits_BTV[:, t]
            predict tokens_BT[:, t + 1].
    """
    logits_BTV = apply(params, batch.tokens_BT[:, :-1], cfg, key=key)
    loss: Array = cross_entropy(logits_BTV, batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:])
    metrics: dict[str, Any] = {"loss": loss}
    if measure is not None:
        metrics |= measure(logits_BTV, batch)
    return loss, metrics
