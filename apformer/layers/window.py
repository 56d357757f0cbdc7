"""Attention within a window, without computing what the mask hides: the same numbers as the masked square.

    score_s(t) = q_t . k_{t + s + 1 - W} / sqrt(K) + bias_s       s = 0 .. W - 1, the oldest key first

Keys stand in order: W - 1 tokens before the first query, then the tokens of the queries. For a narrow window,
`by_offset` computes the scores of all queries at one offset as a product of two slices. For long rows, `by_chunk` cuts
the row into chunks of queries, each with its own keys and those of the window before (Beltagy et al. 2020): so time
and memory grow with the length of a row, and not with its square.
"""

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, export

from apformer.layers import Cache, at_least_float32, attention
from apformer.layers.feedforward import product
from apformer.layers.masks import View

NARROW, HEAD = 8, 16  # largest window and head width for `by_offset`, which has an operation for each pair of them
LEAST = 32  # queries in a chunk: smaller products are slower than the masked square

# Orders of the axes (B, T, H, K) for `by_offset`, whose operations run along the last one.
ROWS_LAST = (2, 3, 1, 0)  # for whole rows, which are many; `project` and `join` keep to it
HEADS_LAST = (0, 3, 1, 2)  # for new tokens, whose earlier keys come from a cache


def serves(cfg: Any, T: int) -> bool:
    """Return whether the window of a model.Config is faster than the masked square for T new tokens.

    A bias of the scores must depend on offsets alone. A position scheme whose bias does has a method `reach`.
    """
    scheme, W = cfg.position_options, cfg.window
    if cfg.similarity != "scaled_dot" or cfg.attention_dropout or export.is_symbolic_dim(T):
        return False
    narrow = T > 1 and W <= NARROW and cfg.d_model // cfg.n_heads <= HEAD
    return (narrow or T >= 4 * max(W, LEAST)) and (hasattr(scheme, "reach") or not hasattr(scheme, "bias"))


def view(T: int, W: int) -> View:
    """Return the view of whole rows of T tokens: before their first tokens there are no keys."""
    step_1T, step_1W = (jnp.arange(size, dtype=jnp.int32)[None] for size in (T, W))
    exists_1TW = step_1T[:, :, None] + step_1W[:, None] >= W - 1
    return View(exists_1TW, step_1T, step_1W[:, -1:], step_1W, faster=(project, attend, join, product))


def cached_view(cache: Cache, square: View, W: int) -> View:
    """Return the view of new tokens after those in a cache. square: their view for masked attention."""
    B, T = square.positions_BT.shape
    rows_B1, step_1W = jnp.arange(B)[:, None], jnp.arange(W, dtype=jnp.int32)[None]
    before_BP = cache["length"][:, None] + step_1W[:, 1:] - W
    slot_BP = before_BP % cache["position"].shape[1]
    exists_BS = jnp.concatenate([before_BP >= 0, jnp.ones((B, T), bool)], axis=1)  # no real token follows padding
    exists_BTW = jnp.stack([exists_BS[:, s : s + T] for s in range(W)], axis=-1)

    def store(layer: dict[str, Array], k_BTHK: Array, v_BTHK: Array) -> Any:
        _, _, written = square.store(layer, k_BTHK, v_BTHK)
        pairs = (layer["key"], k_BTHK), (layer["value"], v_BTHK)
        in_order = (jnp.concatenate([old_BHSK[rows_B1, :, slot_BP], new], axis=1) for old_BHSK, new in pairs)
        return *in_order, written

    faster = (attention.project, partial(attend, order=HEADS_LAST), attention.join, product)
    return View(exists_BTW, square.positions_BT, step_1W[:, -1:], step_1W, store, faster)


def attend(
    q_BTHK: Array,
    k_BSHK: Array,
    v_BSHK: Array,
    mask_BTW: Array,
    bias_1H1W: Array | None = None,
    sink_H: Array | None = None,
    *,
    order: tuple[int, ...] = ROWS_LAST,
) -> tuple[Array, None]:
    """Return the weighted sum of the values, (B, T, H, K), as `attention.attend` gives it for the masked square.

    Keys and values stand in order, S = T + W - 1 of them; the first may be left out where no keys precede the row.
    `mask_BTW` marks the keys in the window of each query that exist. `bias_1H1W` is the bias of any query. `order` is
    the order of axes for a narrow window.
    """
    (_, T, H, K), W = q_BTHK.shape, mask_BTW.shape[-1]
    dtype = at_least_float32(q_BTHK.dtype)
    bias_HW = jnp.zeros((H, W), dtype) if bias_1H1W is None else bias_1H1W[0, :, 0].astype(dtype)
    if W <= NARROW and K <= HEAD and T > 1:
        without_K = [axis for axis in order if axis != 3]
        q, *keys = (x_BTHK.transpose(order) for x_BTHK in (q_BTHK, k_BSHK, v_BSHK))
        keys = (jnp.pad(x, ((0, 0), (0, 0), (T + W - 1 - x.shape[2], 0), (0, 0))) for x in keys)
        mask, bias = (x_BTHW.transpose(3, *without_K) for x_BTHW in (mask_BTW[:, :, None], bias_HW[None, None]))
        sink = None if sink_H is None else sink_H[None, None].transpose(without_K)
        return by_offset(q, *keys, mask, bias, sink).transpose([order.index(axis) for axis in range(4)]), None
    return by_chunk(q_BTHK, k_BSHK, v_BSHK, mask_BTW, bias_HW, sink_H), None


def project(x_BTD: Array, W_DHK: Array, bias_HK: Array | None = None) -> Array:
    """Return x W + b for each head, (B, T, H, K), as `attention.project` does, from W^T x^T.

    Its numbers lie in memory with the rows of the batch as the last axis, which is the order that `by_offset` reads.
    The barrier has XLA write x^T once, and not read across x in each product.
    """
    (B, T, D), (_, H, K) = x_BTD.shape, W_DHK.shape
    x_DN = jax.lax.optimization_barrier(x_BTD.transpose(2, 1, 0).reshape(D, T * B))
    y_HKTB = jnp.einsum("DF,DN->FN", W_DHK.reshape(D, H * K), x_DN).reshape(H, K, T, B)
    return (y_HKTB if bias_HK is None else y_HKTB + bias_HK[:, :, None, None]).transpose(3, 2, 0, 1)


def join(y_BTHK: Array, W_HKD: Array | None = None, bias_D: Array | None = None) -> Array:
    """Return the heads side by side, (B, T, D), through the output projection if there is one: `attention.join`."""
    B, T, H, K = y_BTHK.shape
    y_DN = y_BTHK.transpose(2, 3, 1, 0).reshape(H * K, T * B)
    if W_HKD is not None:
        y_DN = jnp.einsum("FD,FN->DN", W_HKD.reshape(H * K, -1), y_DN)
    y_BTD = y_DN.reshape(len(y_DN), T, B).transpose(2, 1, 0)
    return y_BTD if bias_D is None else y_BTD + bias_D[None, None]


@jax.custom_jvp
def by_offset(q_AKTZ: Array, k_AKSZ: Array, v_AKSZ: Array, mask: Array, bias: Array, sink: Array | None) -> Array:
    """Return the weighted sum of the values, (A, K, T, Z); A and Z are rows and heads, in either order.

    A product of small squares costs a CPU more time to begin than to compute. Here each equation is a few operations on
    long vectors, and a key at an offset is a slice. `mask` and `bias` are (W, A, T, Z), `sink` is (A, T, Z), each with
    axes of size 1 where it is the same along them.
    """
    shares, total_ATZ = _shares(q_AKTZ, k_AKSZ, mask, bias, sink)
    weights = [share_ATZ / total_ATZ for share_ATZ in shares]
    return _sum(weights, _slices(v_AKSZ, q_AKTZ)).astype(v_AKSZ.dtype)


@by_offset.defjvp
def _derivative(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Derive dy = sum_s w_s ds_s v_s - (sum_s w_s ds_s) y + sum_s w_s dv_s, which divides first (see fast.py)."""
    q_AKTZ, k_AKSZ, v_AKSZ, mask, bias, sink = primals
    dq_AKTZ, dk_AKSZ, dv_AKSZ, _, dbias, dsink = tangents
    dtype = bias.dtype
    shares, total_ATZ = _shares(q_AKTZ, k_AKSZ, mask, bias, sink)
    values = _slices(v_AKSZ, q_AKTZ)
    weights = [share_ATZ / total_ATZ for share_ATZ in shares]
    y_AKTZ = _sum(weights, values)
    root = jnp.asarray(q_AKTZ.shape[1] ** -0.5, dtype)
    terms = []
    for s, (key_AKTZ, dkey_AKTZ) in enumerate(zip(_slices(k_AKSZ, q_AKTZ), _slices(dk_AKSZ, q_AKTZ), strict=True)):
        dscore_ATZ = (dq_AKTZ * key_AKTZ + q_AKTZ * dkey_AKTZ).astype(dtype).sum(1) * root
        dscore_ATZ = (dscore_ATZ + dbias[s]) / total_ATZ
        terms.append(shares[s] * jnp.where(mask[s], dscore_ATZ, 0.0))
    if sink is not None:
        terms.append(shares[-1] * (dsink.astype(dtype) / total_ATZ))
    dy_AKTZ = _sum(terms, values) - reduce(jnp.add, terms)[:, None] * y_AKTZ
    dy_AKTZ = dy_AKTZ + _sum(weights, _slices(dv_AKSZ, q_AKTZ))
    return y_AKTZ.astype(v_AKSZ.dtype), dy_AKTZ.astype(v_AKSZ.dtype)


def _shares(q_AKTZ: Array, k_AKSZ: Array, mask: Array, bias: Array, sink: Array | None) -> tuple[list[Array], Array]:
    """Return exp(score - largest score) of each key and of the sink, (A, T, Z) each, and their sum."""
    dtype = bias.dtype
    root = jnp.asarray(q_AKTZ.shape[1] ** -0.5, dtype)

    def score(s: int, key_AKTZ: Array) -> Array:
        products = (q_AKTZ[:, k].astype(dtype) * key_AKTZ[:, k].astype(dtype) for k in range(q_AKTZ.shape[1]))
        return jnp.where(mask[s], reduce(jnp.add, products) * root + bias[s], jnp.finfo(dtype).min)

    scores = [score(s, key_AKTZ) for s, key_AKTZ in enumerate(_slices(k_AKSZ, q_AKTZ))]
    scores += [] if sink is None else [sink.astype(dtype)]
    largest_ATZ = reduce(jnp.maximum, scores)
    shares = [jnp.exp(score_ATZ - largest_ATZ) for score_ATZ in scores]
    return shares, reduce(jnp.add, shares)


def _slices(x_AKSZ: Array, q_AKTZ: Array) -> list[Array]:
    """Return the key or value of each query at each offset, the oldest first: W arrays (A, K, T, Z)."""
    T = q_AKTZ.shape[2]
    return [x_AKSZ[:, :, s : s + T] for s in range(x_AKSZ.shape[2] - T + 1)]


def _sum(weights: list[Array], values: list[Array]) -> Array:
    """Return the sum of weight times value over the offsets, (A, K, T, Z). The weight of a sink, the last, has none."""
    pairs = zip(weights, values, strict=False)
    return reduce(jnp.add, (share_ATZ[:, None] * value_AKTZ.astype(share_ATZ.dtype) for share_ATZ, value_AKTZ in pairs))


def by_chunk(
    q_BTHK: Array,
    k_BSHK: Array,
    v_BSHK: Array,
    mask_BTW: Array,
    bias_HW: Array,
    sink_H: Array | None,
) -> Array:
    """Return the weighted sum of the values, (B, T, H, K), computed for chunks of a row."""
    (B, T), W = q_BTHK.shape[:2], mask_BTW.shape[-1]
    Q = max(W, LEAST)
    C, S = -(-T // Q), Q + W - 1

    def queries(x_BT: Array) -> Array:
        """Return chunks of Q queries, (B C, Q, ...), the last filled up."""
        x_BT = jnp.pad(x_BT, ((0, 0), (0, C * Q - T), *((0, 0),) * (x_BT.ndim - 2)))
        return x_BT.reshape(-1, Q, *x_BT.shape[2:])

    def keys(x_BSHK: Array) -> Array:
        """Return the keys of each chunk, (B C, Q + W - 1, H, K): its own, and the W - 1 before them."""
        before, after = T + W - 1 - x_BSHK.shape[1], 2 * C * Q - (T + W - 1)
        x_BSHK = jnp.pad(x_BSHK, ((0, 0), (before, after), (0, 0), (0, 0)))
        halves = (x_BSHK[:, first : first + C * Q].reshape(B, C, Q, *x_BSHK.shape[2:]) for first in (0, Q))
        return jnp.concatenate([*halves], axis=2)[:, :, :S].reshape(-1, S, *x_BSHK.shape[2:])

    offset_QS = jnp.arange(S)[None] - jnp.arange(Q)[:, None]
    inside_QS, offset_QS = (offset_QS >= 0) & (offset_QS < W), jnp.clip(offset_QS, 0, W - 1)
    mask_BQS = queries(mask_BTW)[:, jnp.arange(Q)[:, None], offset_QS] & inside_QS[None]
    mask_BQS = jnp.tile(mask_BQS, (B // len(mask_BTW), 1, 1))
    bias_1HQS = bias_HW[None, :, offset_QS]
    y_BQHK, _ = attention.attend(queries(q_BTHK), keys(k_BSHK), keys(v_BSHK), mask_BQS, bias_1HQS, sink_H)
    return y_BQHK.reshape(B, C * Q, *y_BQHK.shape[2:])[:, :T]
