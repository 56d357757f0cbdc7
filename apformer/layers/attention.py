"""Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k) + bias) V, over the keys a query may see (Vaswani et al. 2017, 3.2).

A layer projects its input to heads of width d_k = K, rotates queries and keys (`position/`), caches keys and values,
compares queries with keys (`similarity/`), masks, takes the softmax, sums the values and joins the heads. A sink is one
more key for each head, with a learned score and the value 0 (Xiao et al. 2024): so a head can read nothing.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import Function, at_least_float32, config, derivative, position
from apformer.layers.feedforward import product
from apformer.layers.masks import View


def project(x_BTD: Array, W_DHK: Array, bias_HK: Array | None = None, *, product: Function = product) -> Array:
    """Return x W + b for each head, (B, T, H, K): the queries, keys or values."""
    D, H, K = W_DHK.shape
    y_BTHK = product(x_BTD, W_DHK.reshape(D, H * K)).reshape(*x_BTD.shape[:2], H, K)
    return y_BTHK if bias_HK is None else y_BTHK + bias_HK[None, None]


def scaled_dot(q_BTHK: Array, k_BSHK: Array) -> Array:
    """Return the scores q.k / sqrt(K), (B, H, T, S), in at least float32."""
    dtype = at_least_float32(q_BTHK.dtype)
    scores_BHTS = jnp.einsum("BTHK,BSHK->BHTS", q_BTHK, k_BSHK).astype(dtype)
    return scores_BHTS * jnp.asarray(q_BTHK.shape[-1] ** -0.5, dtype)


def softmax(scores_BHTS: Array, mask_BTS: Array, sink_H: Array | None = None) -> Array:
    """Return the weights of the keys, (B, H, T, S). With those of the sink, if there is one, they sum to 1."""
    S = scores_BHTS.shape[-1]
    # A finite minimum: a row that sees nothing (padding) then averages its keys instead of giving NaN.
    scores_BHTS = jnp.where(mask_BTS[:, None], scores_BHTS, jnp.finfo(scores_BHTS.dtype).min)
    if sink_H is not None:
        sink_BHT1 = jnp.broadcast_to(sink_H[None, :, None, None], (*scores_BHTS.shape[:3], 1))
        scores_BHTS = jnp.concatenate([scores_BHTS, sink_BHT1.astype(scores_BHTS.dtype)], axis=-1)
    return jax.nn.softmax(scores_BHTS, axis=-1)[..., :S]


def weighted_sum(weights_BHTS: Array, v_BSHK: Array) -> Array:
    """Return the sum of weight times value over the keys, (B, T, H, K)."""
    return jnp.einsum("BHTS,BSHK->BTHK", weights_BHTS, v_BSHK)


@derivative("softmax_sum")
def softmax_sum(scores_BHTS: Array, mask_BTS: Array, v_BSHK: Array) -> tuple[Array, Array]:
    """Return the weighted sum of the values, (B, T, H, K), and the weights of `softmax`."""
    weights_BHTS = softmax(scores_BHTS, mask_BTS)
    return weighted_sum(weights_BHTS.astype(v_BSHK.dtype), v_BSHK), weights_BHTS


def attend(
    q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask_BTS: Array, bias_BHTS: Array | None = None,
    sink_H: Array | None = None, compare: Function = scaled_dot, dropout: Any = None
) -> tuple[Array, Array | None]:  # fmt: skip
    """Return the weighted sum of the values, (B, T, H, K), and the weights before dropout, (B, H, T, S).

    `compare` is a function of queries and keys that returns scores, (B, H, T, S), to which `bias_BHTS` is added.
    `sink_H` is the score of each head's sink. `dropout` is a function of the weights that sets some of them to 0.
    """
    scores_BHTS = compare(q_BTHK, k_BSHK)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS.astype(scores_BHTS.dtype)
    if sink_H is None and dropout is None:
        y_BTHK, weights_BHTS = softmax_sum(scores_BHTS, mask_BTS, v_BSHK)
        return y_BTHK, weights_BHTS.astype(v_BSHK.dtype)
    weights_BHTS = softmax(scores_BHTS, mask_BTS, sink_H).astype(v_BSHK.dtype)
    return weighted_sum(weights_BHTS if dropout is None else dropout(weights_BHTS), v_BSHK), weights_BHTS


def join(y_BTHK: Array, W_HKD: Array | None = None, bias_D: Array | None = None, *, product: Any = product) -> Array:
    """Return the heads side by side, (B, T, D), through the output projection if there is one."""
    B, T, H, K = y_BTHK.shape
    y_BTD = y_BTHK.reshape(B, T, H * K)
    if W_HKD is not None:
        y_BTD = product(y_BTD, W_HKD.reshape(H * K, H * K))
    return y_BTD if bias_D is None else y_BTD + bias_D[None, None]


class Attention(nn.Module):
    """Self-attention of n_heads heads, each d_model / n_heads wide, with or without a cache of earlier keys."""

    cfg: Any  # the Config of the model

    @nn.compact
    def __call__(self, x_BTD: Array, view: View, cache: Any = None) -> tuple[Array, dict[str, Any], Any]:
        """Return (y_BTD, {name: intermediate array}, the cache of this layer with the new keys and values)."""
        cfg, scheme = self.cfg, self.cfg.position_options
        to_heads, mix, to_stream, _ = view.faster or (project, attend, join, product)
        q_BTHK, k_BSHK, v_BSHK = (to_heads(x_BTD, *projection(self, name)) for name in ("query", "key", "value"))
        q_BTHK, k_BSHK = (position.rotate(scheme, x_BTHK, view.positions_BT) for x_BTHK in (q_BTHK, k_BSHK))
        if view.store is not None:
            k_BSHK, v_BSHK, cache = view.store(cache, k_BSHK, v_BSHK)
        bias = position.Part(scheme, "bias", name=cfg.position)
        bias_BHTS = bias(None, view.query_BT, view.key_BS, cfg, at_least_float32(x_BTD.dtype))
        intermediates, options = {"query": q_BTHK, "key": k_BSHK, "value": v_BSHK}, attend_options(self)
        if not view.faster:  # which have no scores to capture
            compare = options.get("compare", scaled_dot)
            options["compare"] = lambda q_BTHK, k_BSHK: intermediates.setdefault("scores", compare(q_BTHK, k_BSHK))
        y_BTHK, intermediates["attention"] = mix(q_BTHK, k_BSHK, v_BSHK, view.mask_BTS, bias_BHTS, **options)
        return to_stream(y_BTHK, *(projection(self, "output") if cfg.output_projection else ())), intermediates, cache


def projection(module: Any, name: str) -> tuple[Array, Array | None]:
    """Return the weights and the bias, or None, of the projection "query", "key", "value" or "output"."""
    cfg = module.cfg
    D, H, K = cfg.d_model, cfg.n_heads, cfg.d_model // cfg.n_heads
    shape, inputs = ((H, K, D), 2) if name == "output" else ((D, H, K), 1)  # inputs: number of input axes
    weights = module.param(name, nn.initializers.xavier_uniform(range(inputs), range(inputs, 3)), shape)
    return weights, module.param(f"{name}_bias", nn.initializers.zeros, shape[inputs:]) if cfg.attention_bias else None


def attend_options(module: Any) -> dict[str, Any]:
    """Return the sink, the dropout and the score of a layer, as arguments of `attend`; those that it has."""
    cfg, options = module.cfg, {}
    if cfg.attention_sink:
        options["sink_H"] = module.param("sink", nn.initializers.zeros, (cfg.n_heads,))
    if cfg.attention_dropout and module.has_rng("dropout"):
        options["dropout"] = nn.Dropout(cfg.attention_dropout, deterministic=False, name="dropout")
    if cfg.similarity != "scaled_dot":
        options["compare"] = partial(config.load("similarity", cfg.similarity).score, module.param)
    return options
