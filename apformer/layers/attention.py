"""Attention(Q, K, V) = softmax(Q K^T / sqrt(K) + bias) V, over the keys a query may see (Vaswani et al. 2017, 3.2).

`similarity.py` has other scores than Q K^T / sqrt(K), `weighting.py` what may stand for the softmax, `position/` the
bias, and `masks.py` which keys a query may see.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import at_least_float32, position, similarity
from apformer.layers.linear import product
from apformer.layers.position import none
from apformer.layers.similarity import compare
from apformer.layers.weighting import mean, softmax_mean, weigh
from apformer.layers.window import chunks, narrow, offsets


@dataclass(frozen=True)
class Config:
    """What the heads of one layer do. As in `model.Config`: bias there is attention_bias, sink attention_sink."""

    n_heads: int = 1
    bias: bool = False
    output_projection: bool = False
    sink: bool = False
    similarity: str = "scaled_dot"
    weighting: str = "softmax"
    dropout: float = 0.0
    window: int | None = None
    max_len: int = 1024
    position: str = "none"
    position_options: object = none.Scheme()


def attend(
    q_BTHK,
    k_BSHK,
    v_BSHK,
    mask_BTS,
    bias_BHTS=None,
    sink_H=None,
    similarity="scaled_dot",
    weighting="softmax",
    *,
    gain_H=None,
    vector_HK=None,
    dropout=None,
):
    """Weighted mean of the values: (out_BTHK, weights_BHTS); softmax in at least float32, whatever the inputs.

    dropout(weights_BHTS) -> the same with some at 0; the weights returned are those before. With a sink those of a
    query sum to less than 1: the sink has the rest.
    """
    scores_BHTS = compare(q_BTHK, k_BSHK, similarity, gain_H, vector_HK)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS.astype(scores_BHTS.dtype)
    if weighting == "softmax" and sink_H is None and dropout is None:
        return softmax_mean(scores_BHTS, mask_BTS, v_BSHK)
    weights_BHTS = weigh(scores_BHTS, mask_BTS, weighting, sink_H).astype(v_BSHK.dtype)
    return mean(weights_BHTS if dropout is None else dropout(weights_BHTS), v_BSHK), weights_BHTS


class Attention(nn.Module):
    """Self-attention of n_heads heads, each d_model / n_heads wide, with or without a cache of earlier keys."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD, view, cache=None):
        """(y_BTD, weights_BHTS, cache), the cache of this layer with the new keys and values in it."""
        cfg, scheme = self.cfg, self.cfg.position_options
        if view.narrow:
            return _attend_narrow(self, x_BTD, view), None, cache
        names = ("value",) if cfg.similarity == "none" else ("query", "key", "value")
        *products, v_BSHK = (_heads(self.param, name, x_BTD, cfg) for name in names)
        q_BTHK, k_BSHK = products or 2 * [jnp.zeros_like(v_BSHK)]
        q_BTHK = position.rotate(scheme, q_BTHK, view.positions_BT)
        k_BSHK = position.rotate(scheme, k_BSHK, view.positions_BT)
        if chunked := view.chunk is not None:
            q_BTHK, k_BSHK, v_BSHK, view = chunks.cut(q_BTHK, k_BSHK, v_BSHK, view)
        bias_BHTS = position.Bias(scheme, cfg, name=cfg.position)(view, at_least_float32(x_BTD.dtype))
        bias_BHTS = chunks.for_all(bias_BHTS, len(q_BTHK)) if chunked else bias_BHTS
        key = self.make_rng("dropout") if view.training else None
        q_BTHK, bias_BHTS = position.perturb(scheme, q_BTHK, bias_BHTS, key)
        if view.write is not None:
            k_BSHK, v_BSHK, cache = view.write(cache, k_BSHK, v_BSHK)

        def look(y_BTHK, weights_BHTS):
            return position.look(scheme, y_BTHK, weights_BHTS, k_BSHK, v_BSHK, view, key, cache)

        y_BTD, weights_BHTS = _attend(self, q_BTHK, k_BSHK, v_BSHK, view.mask_BTS, bias_BHTS, view, look)
        return chunks.join(y_BTD, *x_BTD.shape[:2]) if chunked else y_BTD, weights_BHTS, cache


class CrossAttention(nn.Module):
    """Attention from the tokens of a target to a source. Rotary positions turn both by their places."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD, view, source_cache=None):
        """(y_BTD, weights_BHTS), from source_cache, which `project_source` made, or else from view.source_BSD.

        With fewer sources than rows, n rows next to each other read the same source: they are folded into one row.
        """
        mask_BTS, scheme = view.source_mask_BTS, self.cfg.position_options
        q_BTHK = position.rotate(scheme, _heads(self.param, "query", x_BTD, self.cfg), view.positions_BT)
        q_BTHK = q_BTHK.reshape(len(mask_BTS), -1, *q_BTHK.shape[2:])
        if source_cache is None:
            k_BSHK, v_BSHK = (_heads(self.param, name, view.source_BSD, self.cfg) for name in ("key", "value"))
            k_BSHK = _turn_source(scheme, k_BSHK)
        else:
            k_BSHK, v_BSHK = (source_cache[name].swapaxes(1, 2) for name in ("key", "value"))
        y_BTD, weights_BHTS = _attend(self, q_BTHK, k_BSHK, v_BSHK, mask_BTS, None, view)
        return y_BTD.reshape(x_BTD.shape), weights_BHTS


def project_source(params, source_BSD, scheme):
    """The keys and values of a source for the cross-attention of these parameters: {"key", "value"}, each BHSK."""
    heads = {name: _project(source_BSD, params[name], params.get(f"{name}_bias")) for name in ("key", "value")}
    heads["key"] = _turn_source(scheme, heads["key"])
    return {name: x_BSHK.swapaxes(1, 2) for name, x_BSHK in heads.items()}


def _turn_source(scheme, k_BSHK):
    return position.rotate(scheme, k_BSHK, jnp.arange(k_BSHK.shape[1], dtype=jnp.int32)[None])


def _attend_narrow(module, x_BTD, view):
    """y_BTD of attention within a narrow window, with the rows of the batch side by side (window/narrow.py)."""
    cfg, param, (B, T, D) = module.cfg, module.param, x_BTD.shape
    x_DN = narrow.side_by_side(x_BTD)

    def heads(name):
        W_DHK, bias_HK = _parameters(param, name, D, cfg)
        y_HKTB = jnp.einsum("DF,DN->FN", W_DHK.reshape(D, D), x_DN).reshape(*W_DHK.shape[1:], T, B)
        return y_HKTB if bias_HK is None else y_HKTB + bias_HK[:, :, None, None]

    bias_BHTS = position.Bias(cfg.position_options, cfg, name=cfg.position)(view, at_least_float32(x_BTD.dtype))
    bias_HW = jnp.zeros((cfg.n_heads, cfg.window), x_BTD.dtype) if bias_BHTS is None else bias_BHTS[0, :, 0]
    y_HKTB = narrow.attend(*map(heads, ("query", "key", "value")), bias_HW, _sink(param, cfg))
    if not cfg.output_projection:
        return y_HKTB.reshape(D, T, B).transpose(2, 1, 0)
    W_HKD, bias_D = _output_parameters(param, cfg, *y_HKTB.shape[:2])
    y_DN = jnp.einsum("FD,FN->DN", W_HKD.reshape(D, D), y_HKTB.reshape(D, T * B))
    y_BTD = y_DN.reshape(D, T, B).transpose(2, 1, 0)
    return y_BTD if bias_D is None else y_BTD + bias_D[None, None]


def _project(x_BTD, W_DHK, bias_HK=None):
    """x W + b for each head: (B, T, H, K)."""
    D, H, K = W_DHK.shape
    y_BTHK = product(x_BTD, W_DHK.reshape(D, H * K)).reshape(*x_BTD.shape[:2], H, K)
    return y_BTHK if bias_HK is None else y_BTHK + bias_HK[None, None]


def _heads(param, name, x_BTD, cfg):
    """The queries, keys or values of all heads: (B, T, H, K)."""
    return _project(x_BTD, *_parameters(param, name, x_BTD.shape[-1], cfg))


def _parameters(param, name, D, cfg):
    """W_DHK and bias_HK of the queries, keys or values; without a bias it is None."""
    H = cfg.n_heads
    W_DHK = param(name, nn.initializers.xavier_uniform(in_axis=0, out_axis=(1, 2)), (D, H, D // H))
    return W_DHK, param(f"{name}_bias", nn.initializers.zeros, (H, D // H)) if cfg.bias else None


def _output_parameters(param, cfg, H, K):
    """W_HKD and bias_D of the output projection; without a bias it is None."""
    W_HKD = param("output", nn.initializers.xavier_uniform(in_axis=(0, 1), out_axis=2), (H, K, H * K))
    return W_HKD, param("output_bias", nn.initializers.zeros, (H * K,)) if cfg.bias else None


def _sink(param, cfg):
    """The score of each head's sink, or None."""
    return param("sink", nn.initializers.zeros, (cfg.n_heads,)) if cfg.sink else None


def _attend(module, q_BTHK, k_BSHK, v_BSHK, mask_BTS, bias_BHTS, view, look=lambda *read: read):
    """(y_BTD, weights_BHTS), with what the heads of a module learn beside queries, keys and values.

    look(y_BTHK, weights_BHTS) -> the same, with what the position scheme puts in their place (`position.look`).
    """
    cfg, param = module.cfg, module.param
    sink_H = _sink(param, cfg)
    if view.by_offset:
        y_BTHK = offsets.attend(q_BTHK, k_BSHK, v_BSHK, mask_BTS, bias_BHTS, sink_H)
        return _merge_heads(param, y_BTHK, cfg), None
    learned = similarity.parameters(param, cfg.similarity, cfg.n_heads, q_BTHK.shape[-1])
    dropout = nn.Dropout(cfg.dropout, deterministic=False, name="dropout") if view.training and cfg.dropout else None
    y_BTHK, weights_BHTS = attend(
        q_BTHK, k_BSHK, v_BSHK, mask_BTS, bias_BHTS, sink_H, cfg.similarity, cfg.weighting, **learned, dropout=dropout
    )
    y_BTHK, weights_BHTS = look(y_BTHK, weights_BHTS)
    return _merge_heads(param, y_BTHK, cfg), weights_BHTS


def _merge_heads(param, y_BTHK, cfg):
    """The heads side by side, (B, T, D), through the output projection if there is one."""
    B, T, H, K = y_BTHK.shape
    if not cfg.output_projection:
        return y_BTHK.reshape(B, T, H * K)
    W_HKD, bias_D = _output_parameters(param, cfg, H, K)
    y_BTD = product(y_BTHK.reshape(B, T, H * K), W_HKD.reshape(H * K, H * K))
    return y_BTD if bias_D is None else y_BTD + bias_D[None, None]
