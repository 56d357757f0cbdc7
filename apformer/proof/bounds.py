"""Bound the rounding error of a layer in float32, from the sums and products it is made of.

A float32 computation may add in any order, fused or not. The relative error of a sum, product or quotient is at most
U = 2^-24, that of exp, square root and reciprocal at most FUNCTION, and that of the factor 1/sqrt(K) at most 4 U. A
sum of n products a b errs by at most gamma(n) sum |a b|, where gamma(n) = n U / (1 - n U) (Higham 2002, 3.1). Every
step adds such an error, and carries on those of the steps before. Of the error dx of a state x only a bound of its
length is kept: |dx| <= e. Three facts keep the bounds small:

- Along a direction c, T dx is at most |T'c| e. The directions that matter are known in advance (rounding.py), and for
  each of them |T'c|^2 is a quadratic form of the attention weights.
- If scores move by ds, the weighted sum of the values moves by no more than
  sum_o w_o (e^ds_o - 1) |v_o - mean| / sum_o w_o e^-ds_o.
- relu(h + dh) - relu(h) is dh where h > |dh| and 0 where h < -|dh|. So for errors a feed-forward layer is the linear
  map A = W_1 M W_2, where M selects the active units. Its spectral norm is at most tr((A A')^2)^(1/4), computed for
  each distinct M.

States are computed by network.py in float64. Bounds are sums of terms that are not negative; they are computed in
float32, whose relative error is then at most 1e-4. The factor SLACK covers this, and the rounding of float64. Where a
number may overflow, the bound is infinite. TINY is more than the errors of numbers below 2^-126 that become 0, here
and in the computation that is bounded.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from apformer.proof import network

U = 2.0**-24
FUNCTION = 8 * U  # relative error of exp, square root and reciprocal: 4 units in the last place
SLACK = 1.01  # factor that covers the rounding of the bounds themselves
LARGEST = 2.0**60  # length of a state and a norm's weights, whose squares float32 can add; largest size of a sum
TINY = 1e-9  # added to sizes: then rounding is more than underflow, and its square does not underflow
MASKS = 2**8  # batch size of `growth`
float32 = np.float32


def gamma(n: int) -> float:
    """Return the bound of the error of a sum of n products a b, divided by sum |a b|."""
    return n * U / (1 - n * U)


def sum_rounding(n: int, size: np.ndarray) -> np.ndarray:
    """Bound the rounding of sums of n products; size: sum |a b| of each. Infinite where it is larger than LARGEST."""
    return np.where(size < LARGEST, gamma(n) * (size + float32(TINY)), float32(np.inf))


def length(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the Euclidean length along an axis."""
    x = np.moveaxis(x, axis, -1)
    return np.sqrt(np.einsum("...d,...d->...", x, x))


def spectral_norm(matrix: np.ndarray) -> float32:
    """Return an upper bound of the spectral norm, the largest factor by which a matrix lengthens a vector."""
    return float32(SLACK * np.linalg.matrix_norm(matrix, ord=2))


def product_length(x: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Return the lengths |W x| for each head, (N, H): x (N, H, K), matrices W (D, H, K)."""
    forms = np.einsum("dhk,dhl->hkl", matrices, matrices)
    return np.sqrt(np.maximum(np.einsum("hnk,nhk->nh", x.swapaxes(0, 1) @ forms, x), 0.0))


def select(parts: Any, rows: np.ndarray) -> Any:
    """Index the rows of every array in a NamedTuple of arrays and of such NamedTuples."""
    return type(parts)(*(select(part, rows) if isinstance(part, tuple) else part[rows] for part in parts))


class Normed(NamedTuple):
    """norm(x) = r * scale + bias with r = (x - mean) / s, and bounds. In a model without norms r is x, and s is 1."""

    s: np.ndarray  # (N,) divisor
    change: np.ndarray  # (N,) bound of the change of s
    least: np.ndarray  # (N,) lower bound of s
    e: np.ndarray  # (N,) bound of the length of the error of r
    local: np.ndarray  # (N,) the part of e that the norm itself adds
    n: np.ndarray  # (N, D) norm(x)
    size: np.ndarray  # (N, D) |r * scale| + |bias| + TINY, to which the rounding of norm(x) is proportional


def scale_of(w: dict, name: str) -> np.ndarray:
    """Return the scale of a norm, (D,), or (1,) in a model without norms."""
    return w.get(f"{name}.scale", np.ones(1))


def bound_norm(x: np.ndarray, e: np.ndarray, w: dict, name: str, epsilon: float) -> Normed:
    """Compute norm(x) and bound its error, for states x (N, D) with errors of length e (N,) at most.

    The derivative of r by x has a spectral norm of at most 1/s.
    """
    D = x.shape[1]
    e = np.where(length(x) + e + sum(length(w[key]) for key in w if name in key) < LARGEST, e, np.inf).astype(float32)
    if f"{name}.scale" not in w:
        ones = np.ones(len(x), float32)
        return Normed(ones, 0 * ones, ones, e, 0 * ones, x, np.abs(x).astype(float32) + float32(TINY))
    mean = x.mean(-1, keepdims=True)
    x = x - mean
    s, change = np.sqrt(np.einsum("nd,nd->n", x, x) / D + epsilon), e / D**0.5
    x /= s[:, None]
    least = np.maximum(s - change, epsilon**0.5).astype(float32)
    # Rounding of the mean, perhaps by a reciprocal of D. The mean of |x| is at most the root of the mean of x^2.
    shift = gamma(D + 8) * (np.sqrt(s**2 + mean[:, 0] ** 2) + change)
    share = gamma(D + 12) / 2 + np.square(shift / least) + 2 * FUNCTION + 2 * U + 2.0**-125 / epsilon
    local = (SLACK * D**0.5 * (shift / least + share)).astype(float32)  # |r| <= sqrt(D)
    x *= w[f"{name}.scale"]
    size = np.abs(x.astype(float32)) + np.abs(w[f"{name}.bias"]).astype(float32) + float32(TINY)
    x += w[f"{name}.bias"]
    return Normed(s, change, least, e / least + local, local, x, size)


class HeadBounds(NamedTuple):
    """Queries, keys and values, with bounds of their errors dq, dk, dv and of the matrices that carry these on."""

    heads: network.Heads
    e: np.ndarray  # (M,) length of the error of the normed states
    tokens: np.ndarray  # (7, M, H) |W_q' k|, rounding of k, |dk|, |k|; rounding of v, |dv|, |v|
    query: np.ndarray  # (4, M, H) |W_k' q|, rounding of q, |dq|, |q|
    values: np.ndarray  # (M, H, K) v in float32
    forms: np.ndarray  # (H, H) quadratic form of the attention weights, |sum_h weight_h W_v W_o|^2 (Frobenius)
    spectral_o: float32  # spectral norm of W_o
    spectral_v: float32  # of W_v
    spectral_abs_o: float32  # of |W_o|


def bound_heads(x: np.ndarray, e: np.ndarray, w: dict, cfg: dict) -> HeadBounds:
    """Compute queries, keys and values, and bound their errors, for states x (M, D) with errors of length e (M,)."""
    heads, D, H = network.project(x, w, cfg), cfg["d_model"], cfg["n_heads"]
    K, scale, errors, scaled = D // H, scale_of(w, "attention_norm"), {}, {}

    def sizes(at: slice) -> tuple:
        normed = bound_norm(x[at], e[at], w, "attention_norm", cfg["norm_epsilon"])
        return normed.e, length((normed.size @ absolute).reshape(-1, 3 * H, K))

    matrices = network.projections(w, cfg)
    absolute = np.abs(np.concatenate([*matrices.values()], axis=1)).astype(float32)
    normed_e, size = network.map_batches(sizes, len(x))
    for (name, W_DD), part, size_MH in zip(matrices.items(), heads, np.split(size, 3, axis=1), strict=True):
        scaled[name] = W_DHK = (scale[:, None] * W_DD).reshape(D, H, K)
        norm_H, abs_H = (spectral_norm(W.swapaxes(0, 1)) for W in (W_DHK, np.abs(W_DHK)))
        local = sum_rounding(D + 5, size_MH + abs_H * normed_e[:, None])
        errors[name] = local, local + norm_H * normed_e[:, None], length(part)
    by_query, by_key = product_length(heads.k, scaled["query"]), product_length(heads.q, scaled["key"])
    tokens = np.stack([by_query, *errors["key"], *errors["value"]]).astype(float32)
    query = np.stack([by_key, *errors["query"]]).astype(float32)
    W_o = w["attention.output"].reshape(D, D)
    through = np.einsum("dhk,hkj->hdj", scaled["value"], W_o.reshape(H, K, D)).reshape(H, -1)
    spectral = map(spectral_norm, (W_o, scaled["value"].reshape(D, D), np.abs(W_o)))
    forms = padded(through @ through.T).astype(float32)
    return HeadBounds(heads, normed_e, tokens, query, heads.v.astype(float32), forms, *spectral)


def padded(forms: np.ndarray) -> np.ndarray:
    """Return quadratic forms (H, H, ...) with their rounding and underflow in float32 added to the diagonals."""
    H, size = len(forms), np.sqrt(np.square(forms).sum((0, 1)))
    forms = forms.copy()
    forms[np.arange(H), np.arange(H)] += gamma(4 * H * H + 64) * size + TINY**2
    return forms


class AttentionBounds(NamedTuple):
    """States after attention, bounds of their errors by source, and the attention weights."""

    y: np.ndarray  # (N, D)
    e: np.ndarray  # (N,) length of the error of y
    mean: np.ndarray  # (N, H) length of the error of each head's weighted sum, without the part due to `read`
    rest: np.ndarray  # (N,) length of the error of y, without the parts due to `read` and `mean`
    weight: np.ndarray  # (N, W, H)
    read: np.ndarray  # (N, W) length of the error of each normed state that is read
    by_read: np.ndarray  # (N, W) factor by which that error may grow on its way into y


def bound_attention(below: HeadBounds, row: np.ndarray, x: np.ndarray, e_x: np.ndarray, w: dict) -> AttentionBounds:
    """Compute the states after attention as network.attend does, and bound their errors.

    e_x: (N,) bounds of the lengths of the errors of x, to which the output is added.
    """
    heads, attention = below.heads, network.attend(below.heads, row, x, w)
    (N, W), (H, K) = row.shape, heads.q.shape[1:]
    mean, weight = (part.astype(float32) for part in (attention.mean.reshape(N, H, K), attention.weight))
    by_key, rounding_q, dq, size_q = below.query.take(row[:, 0], 1)
    e_q, bias = below.e[row[:, 0], None], np.abs(w["bias"]).astype(float32)
    ds, valid = np.zeros_like(weight), (row >= 0).T
    tokens, read = [below.tokens.take(row[:, o], 1) for o in range(W)], below.e[row.T] * valid
    for o, (by_query, rounding_k, dk, size_k, *_) in enumerate(tokens):
        ds_o = read[o, :, None] * by_key + size_q * rounding_k + dk * dq + e_q * by_query + size_k * rounding_q
        ds_o += sum_rounding(K + 3, (size_q + dq) * (size_k + dk) + bias[:, o])
        ds[o] = np.where(valid[o, :, None], ds_o * (1 + 2 * U), 0.0)
    far = attention.score.max(0) - attention.score
    ds += FUNCTION + 3 * U * (np.where(np.isfinite(far), far, 0.0) + 2 * ds.max(0))
    # e^ds - 1 <= ds e^ds. A weight is e^-far times the largest, though it may underflow.
    moves = weight.max(0) * ds * np.exp((ds - far).astype(float32)) / (weight / np.exp(ds)).sum(0)
    dv_any = np.max([np.where(valid[o, :, None], tokens[o][5], 0.0) for o in range(W)], axis=0)
    size_mean, any_move = length(mean), moves.sum(0)
    e_mean = moves[W] * size_mean + any_move * dv_any
    for o, (*_, rounding_v, dv, size_v) in enumerate(tokens):
        e_mean += moves[o] * (length(below.values[row[:, o]] - mean) + dv_any)
        sizes = (weight[o] * (1 + any_move) + moves[o]) * (size_v + dv)
        e_mean += weight[o] * rounding_v + sum_rounding(W + 8, sizes)  # W + 4, and v - mean is itself rounded
    e_mean = SLACK * (e_mean + (gamma(W + 8) + 2 * FUNCTION) * (size_mean + e_mean + dv_any))
    size = below.spectral_abs_o * (length(size_mean) + length(e_mean) + length(dv_any))
    size = size + length(x).astype(float32) + e_x
    rest = SLACK * (e_x + sum_rounding(H * K + 2, size))
    by_read = np.sqrt(np.maximum(np.einsum("onh,onh->on", weight[:W], weight[:W] @ below.forms), 0.0))
    largest = reduce(np.maximum, weight[:W].transpose(2, 0, 1))  # faster than max over a short axis
    growth = np.minimum(by_read, below.spectral_o * below.spectral_v * largest)
    e = SLACK * (rest + below.spectral_o * length(e_mean) + (read * growth).sum(0))
    return AttentionBounds(attention.y, e, e_mean, rest, weight[:W].swapaxes(0, 1), read.T, by_read.T)


class Units(NamedTuple):
    """The matrices that bound the errors of hidden units h = r @ columns + constant, where r is of a Normed."""

    columns: np.ndarray  # (D, F) W_1 times the scale of the norm
    absolute: np.ndarray  # (D + 2, F) |W_1|, |b_1|, and the lengths of the columns
    length: np.ndarray  # (F,) of the columns
    constant: np.ndarray  # (F,)
    spectral_abs_2: float32  # spectral norm of |W_2|


def hidden_units(w: dict) -> Units:
    """Return the Units of a layer with the weights w."""
    W_1, b_1 = w["feedforward.expand.weight"], w["feedforward.expand.bias"]
    columns = scale_of(w, "feedforward_norm")[:, None] * W_1
    absolute = np.vstack([np.abs(W_1), np.abs(b_1), length(columns, 0)]).astype(float32)
    constant = w.get("feedforward_norm.bias", np.zeros(len(W_1))) @ W_1 + b_1
    spectral_abs_2 = spectral_norm(np.abs(w["feedforward.contract.weight"]))
    return Units(columns, absolute, absolute[-1], constant, spectral_abs_2)


def product_rounding(normed: Normed, absolute: np.ndarray) -> np.ndarray:
    """Bound the rounding of norm(x) times a matrix plus a bias, (N, F); absolute: (D + 2, F) as in Units."""
    sizes = np.column_stack([normed.size, np.ones(len(normed.e), float32), normed.e])
    return sum_rounding(len(absolute) + 3, sizes @ absolute)


def relu_change(h: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """Bound |relu(h + d) - relu(h)| for |d| <= dh."""
    return np.maximum(np.minimum(dh, h + dh), 0.0)


def output_rounding(size_y: np.ndarray, h: np.ndarray, change: np.ndarray, units: Units, w: dict) -> np.ndarray:
    """Bound the length of the rounding of y + relu(h) W_2 + b_2; size_y: |y|; change: relu_change of h."""
    W_2, b_2 = w["feedforward.contract.weight"], w["feedforward.contract.bias"]
    size = units.spectral_abs_2 * (length(np.maximum(h, 0.0)) + length(change)) + size_y + float32(length(b_2))
    return sum_rounding(len(W_2) + 3, size)


def bound_block(
    x: np.ndarray, e: np.ndarray, seen: np.ndarray, w: dict, cfg: dict, onto: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the states after a layer, (N, D) as network.block does, and bounds of the lengths of their errors, (N,).

    e: (M,) bounds of the lengths of the errors of x. All else as for network.block; onto has no error.
    """
    below, units, residual = bound_heads(x, e, w, cfg), hidden_units(w), onto is None
    W_2 = w["feedforward.contract.weight"]
    spectral_2 = spectral_norm(W_2)

    def batch(at: slice) -> tuple:
        row = seen[at]
        base = x[row[:, 0]] if onto is None else onto[at]
        y, e_y, *_ = bound_attention(below, row, base, e[row[:, 0]] * residual, w)
        h = network.hidden(y, w, cfg)
        z = network.contract(h, w) + y * residual
        normed, h = bound_norm(y, e_y, w, "feedforward_norm", cfg["norm_epsilon"]), h.astype(float32)
        local = product_rounding(normed, units.absolute)
        dh = SLACK * (normed.e[:, None] * units.length + local)
        rest = output_rounding(residual * (length(y).astype(float32) + e_y), h, relu_change(h, dh), units, w)
        nonlinear = (h > 0) * local + np.maximum(dh - np.abs(h), 0.0)
        return z, residual * e_y + spectral_2 * length(nonlinear) + rest, np.packbits(h > 0, axis=1), normed.e

    z, errors, active, e_normed = network.map_batches(batch, len(seen))
    masks, mask_of = np.unique(active, axis=0, return_inverse=True)
    return z, SLACK * (errors + growth(masks, units.columns, W_2)[mask_of.ravel()] * e_normed)


def growth(masks: np.ndarray, W_1: np.ndarray, W_2: np.ndarray) -> np.ndarray:
    """Bound the spectral norm of W_1 M W_2 for each mask M of active units; masks: (masks, F / 8) bits."""
    # Rounding of the products in float32, in the Frobenius norm.
    rounding = gamma(2 * len(W_2)) * np.linalg.norm(W_1) * np.linalg.norm(W_2)
    W_1, W_2 = W_1.astype(float32), W_2.astype(float32)

    def batch(at: slice) -> np.ndarray:
        active = np.unpackbits(masks[at], axis=1, count=len(W_2)).astype(float32)
        A = ((active[:, None] * W_1).reshape(-1, len(W_2)) @ W_2).reshape(len(active), -1, len(W_1))
        return length((A @ A.swapaxes(1, 2)).reshape(len(A), -1)) ** 0.5

    return (1 + 1e-4) * network.map_batches(batch, len(masks), MASKS) + float32(2 * rounding + TINY)
