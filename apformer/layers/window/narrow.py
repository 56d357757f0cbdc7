"""Attention within a narrow window, offset by offset, with all rows of a batch side by side; and its gradient.

    score_s(t) = q_t . k_{t + s + 1 - W} / sqrt(K) + bias_s       s = 0 .. W - 1, the oldest key first
    weight_s(t) = exp(score_s(t)) / (sum_r exp(score_r(t)) + exp(sink))
    y_t = sum_s weight_s(t) v_{t + s + 1 - W}

With the gradient dy of a loss by y, its gradient by the scores is

    dscore_s(t) = weight_s(t) (v_{t + s + 1 - W} . dy_t - y_t . dy_t)

The masked square of all queries and all keys is one small matrix product for each row and head. The mask hides most
scores. A small product costs a CPU more time to begin than to compute. Here the rows are the last axis of every array,
so each equation above is a few operations on long vectors. A key at an offset is a slice. The projections write this
order themselves: W^T x^T. `offsets.py` does the same for rows that go on from a cache.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from jax import export

from apformer.layers import at_least_float32
from apformer.layers.masks import View
from apformer.layers.window import offsets

MOST = 8  # keys of a window: with more, the operations take longer to compile than they save
LEAST = 8  # rows of a batch: fewer do not fill a vector


def serve(cfg, B, T, training=False):
    """Whether a model of this Config reads B whole rows of T tokens in this way."""
    if export.is_symbolic_dim(B) or B < LEAST or (training and cfg.attention_dropout):
        return False
    return offsets.serve(cfg, T) and cfg.window <= MOST


def view(window):
    """What the layers see: one query, the last of its window, stands for all."""
    step_1W = jnp.arange(window, dtype=jnp.int32)[None]
    return View(None, step_1W[:, -1:], step_1W, narrow=True)


def side_by_side(x_BTD):
    """The rows as the last axis: (D, T B). The barrier has XLA write it once, not read across it in each product."""
    return jax.lax.optimization_barrier(x_BTD.transpose(2, 1, 0).reshape(x_BTD.shape[2], -1))


@jax.custom_vjp
def attend(q_HKTB, k_HKTB, v_HKTB, bias_HW, sink_H=None):
    """Weighted mean of the values: (H, K, T, B). Softmax in at least float32, whatever the inputs.

    Its gradient is reverse-mode alone: `model.apply` with plain=True has every other.
    """
    return _forward(q_HKTB, k_HKTB, v_HKTB, bias_HW, sink_H)[0]


def _forward(q_HKTB, k_HKTB, v_HKTB, bias_HW, sink_H):
    (_, K, T, _), W, dtype = q_HKTB.shape, bias_HW.shape[1], at_least_float32(q_HKTB.dtype)
    root = jnp.asarray(K**-0.5, dtype)
    there_WT = jnp.arange(W)[:, None] >= W - 1 - jnp.arange(T)[None]  # else the key would stand before the row

    def score(s, key_HKTB):
        score_HTB = _dot(q_HKTB, key_HKTB, dtype) * root + bias_HW.astype(dtype)[:, s, None, None]
        return jnp.where(there_WT[s, None, :, None], score_HTB, jnp.finfo(dtype).min)

    scores = [score(s, key_HKTB) for s, key_HKTB in enumerate(_at_offsets(k_HKTB, W))]
    scores += [] if sink_H is None else [sink_H.astype(dtype)[:, None, None]]
    largest_HTB = reduce(jnp.maximum, scores)
    shares = [jnp.exp(score_HTB - largest_HTB) for score_HTB in scores]
    whole_HTB = sum(shares)
    y_HKTB = _mean([share_HTB / whole_HTB for share_HTB in shares[:W]], _at_offsets(v_HKTB, W)).astype(v_HKTB.dtype)
    return y_HKTB, (q_HKTB, k_HKTB, v_HKTB, bias_HW, sink_H, shares, whole_HTB, y_HKTB)


def _backward(saved, dy_HKTB):
    *given, shares, whole_HTB, y_HKTB = saved
    q_HKTB, k_HKTB, v_HKTB, bias_HW, sink_H = given
    K, W, dtype = q_HKTB.shape[1], bias_HW.shape[1], whole_HTB.dtype
    mean_HTB = _dot(dy_HKTB, y_HKTB, dtype)
    # Divided last: XLA computes a quotient once, and sums and products anew for each operation that reads them.
    weights = [share_HTB / whole_HTB for share_HTB in shares]
    dscores = [
        share_HTB * (_dot(dy_HKTB, value_HKTB, dtype) - mean_HTB) / whole_HTB
        for share_HTB, value_HKTB in zip(shares, _at_offsets(v_HKTB, W), strict=False)
    ]
    root = jnp.asarray(K**-0.5, dtype)
    gradients = [
        _mean(dscores, _at_offsets(k_HKTB, W)) * root,
        _mean(_from_offsets(dscores), _from_offsets([q_HKTB] * W)) * root,
        _mean(_from_offsets(weights[:W]), _from_offsets([dy_HKTB] * W)),
        jnp.stack([dscore_HTB.sum((1, 2)) for dscore_HTB in dscores], axis=1),
        None if sink_H is None else -(weights[W] * mean_HTB).sum((1, 2)),
    ]
    return tuple(None if x is None else dx.astype(x.dtype) for dx, x in zip(gradients, given, strict=True))


attend.defvjp(_forward, _backward)


def _dot(a_HKTB, b_HKTB, dtype):
    """a . b for each head and token: (H, T, B)."""
    return sum(a_HKTB[:, k].astype(dtype) * b_HKTB[:, k].astype(dtype) for k in range(a_HKTB.shape[1]))


def _mean(weights, values):
    """The sum of weight times value over the offsets: (H, K, T, B)."""
    pairs = zip(weights, values, strict=True)
    return sum(weight_HTB[:, None] * value_HKTB.astype(weight_HTB.dtype) for weight_HTB, value_HKTB in pairs)


def _at_offsets(x_HKTB, W):
    """What each token finds at each offset, the oldest first: x of t + s + 1 - W, and 0 before the row."""
    T, padded_HKSB = x_HKTB.shape[2], jnp.pad(x_HKTB, ((0, 0), (0, 0), (W - 1, 0), (0, 0)))
    return [padded_HKSB[:, :, s : s + T] for s in range(W)]


def _from_offsets(values):
    """What finds each token at each offset: x_s of t - (s + 1 - W), and 0 after the row."""
    W, (*_, T, _) = len(values), values[0].shape

    def later(s, x_TB):
        axes = ((0, 0),) * (x_TB.ndim - 2)
        return jnp.pad(x_TB, (*axes, (0, W - 1), (0, 0)))[..., W - 1 - s : W - 1 - s + T, :]

    return [later(s, x_TB) for s, x_TB in enumerate(values)]
