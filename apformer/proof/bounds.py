"""Bounds of the rounding of a layer in float32, from the sums and products it is made of.

A float32 computation may add in any order, fused or not. A sum, product or quotient is right to a share of U = 2^-24;
exp, square root and reciprocal are right to FUNCTION. A sum of n products a b errs by gamma(n) sum |a b| at most, where
gamma(n) = n U / (1 - n U) (Higham 2002, 3.1). Such errors are made everywhere, and what comes after carries them on.
Here the error of a state is known by its length alone: it is x + dx, with |dx| <= e. Three things keep bounds small:

- Along a direction c, T dx is at most |T'c| e. The directions that matter are known in advance (rounding.py). Of each,
  |T'c|^2 is a quadratic form of the attention weights.
- If scores move by ds, the weighted sum of the values moves by no more than
  sum_o w_o (e^ds_o - 1) |v_o - mean| / sum_o w_o e^-ds_o.
- relu(h + dh) - relu(h) is dh above |dh| and 0 below -|dh|. So a feed-forward part is a linear map W_1 M W_2, where M
  has the units that are on. What a vector grows by is at most tr((A A')^2)^(1/4), which is computed for each M.

The states are those of network.py, in float64. What is added up from there are numbers that are not negative, of which
float32 loses a share of 1e-4 at most: bounds are computed in float32, and SLACK covers it, as it covers the rounding of
float64. What may overflow has no bound. Left out is underflow.
"""

from typing import Any, NamedTuple

import numpy as np

from apformer.proof import network

U = 2.0**-24
FUNCTION = 8 * U  # 4 units in the last place
SLACK = 1.01
LARGEST = 2.0**60  # length of a state whose squares float32 can add
MASKS = 2**8  # at once
float32 = np.float32


def gamma(n: int) -> float:
    """Return the share of sum |a b| by which a sum of n products may err."""
    return n * U / (1 - n * U)


def rounded(n: int, size: np.ndarray) -> np.ndarray:
    """Return by how much sums of n products may err, whose sizes add up to this; infinite where they may overflow."""
    return np.where(size < LARGEST**2, float32(gamma(n)) * size, float32(np.inf))


def length(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the Euclidean length."""
    x = np.moveaxis(x, axis, -1)
    return np.sqrt(np.einsum("...d,...d->...", x, x))


def spectral(matrix: np.ndarray) -> float32:
    """Return the largest factor by which a matrix lengthens a vector."""
    return float32(SLACK * np.linalg.norm(matrix, 2))


def lengthened(x: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Return the lengths |W x| of each head, (N, H): x (N, H, K), matrices W (D, H, K)."""
    forms = np.einsum("dhk,dhl->hkl", matrices, matrices)
    return np.sqrt(np.maximum(np.einsum("hnk,nhk->nh", x.swapaxes(0, 1) @ forms, x), 0.0))


def taken(parts: Any, rows: np.ndarray) -> Any:
    """Return a NamedTuple of arrays, or of such NamedTuples, of some of their rows."""
    return type(parts)(*(taken(part, rows) if isinstance(part, tuple) else part[rows] for part in parts))


class Normed(NamedTuple):
    """norm(x) = r * scale + bias with r = (x - mean) / s. In a model without norms r is x, and s is 1."""

    s: np.ndarray  # (N,)
    change: np.ndarray  # (N,) how far s may change
    least: np.ndarray  # (N,) of s
    e: np.ndarray  # (N,) length of the error of r
    local: np.ndarray  # (N,) the part of it that the norm itself adds
    n: np.ndarray  # (N, D) norm(x)
    size: np.ndarray  # (N, D) |r * scale| + |bias|, of which the rounding of norm(x) is a share


def scale_of(w: dict, name: str) -> np.ndarray:
    """Return the scale of a norm, (D,), or (1,) in a model without norms."""
    return w.get(f"{name}.scale", np.ones(1))


def bias_of(w: dict, name: str) -> np.ndarray:
    """Return the bias of a norm, (D,), or (1,) in a model without norms."""
    return w.get(f"{name}.bias", np.zeros(1))


def standard(x: np.ndarray, e: np.ndarray, w: dict, name: str, epsilon: float) -> Normed:
    """Return the Normed of states whose errors are at most e long: the derivative of r by x has norm 1/s at most."""
    D = x.shape[1]
    e = np.where(length(x) + e < LARGEST, e, np.inf).astype(float32)
    if f"{name}.scale" not in w:
        one, zero = np.ones(len(x), float32), np.zeros(len(x), float32)
        return Normed(one, zero, one, e, zero, x, np.abs(x).astype(float32))
    mean = x.mean(-1, keepdims=True)
    x = x - mean
    s, change = np.sqrt(np.einsum("nd,nd->n", x, x) / D + epsilon), e / float32(D**0.5)
    x /= s[:, None]
    least = np.maximum(s - change, epsilon**0.5).astype(float32)
    # Of the mean, which a reciprocal of D may divide; no mean of sizes is above the root of the mean of squares.
    shift = gamma(D + 8) * (np.sqrt(s**2 + mean[:, 0] ** 2) + change)
    share = gamma(D + 12) / 2 + np.square(shift / least) + 2 * FUNCTION + 2 * U
    local = (SLACK * D**0.5 * (shift / least + share)).astype(float32)  # no r is longer than sqrt(D)
    x *= w[f"{name}.scale"]
    size = np.abs(x.astype(float32)) + np.abs(w[f"{name}.bias"]).astype(float32)
    x += w[f"{name}.bias"]
    return Normed(s, change, least, e / least + local, local, x, size)


class Lower(NamedTuple):
    """Errors of what attention reads of the states before a layer, and the matrices that carry them on."""

    e: np.ndarray  # (M,) length of the error of the normed states
    tokens: np.ndarray  # (M, 7, H) |W_q' k|, errors of products of keys, of keys, |k|, the same of values but the first
    query: np.ndarray  # (M, 4, H) |W_k' q|, errors of products of queries, of queries, |q|
    forms: np.ndarray  # (H, H) |sum_h weight_h W_v W_o|^2, of all entries, as a quadratic form
    grows_o: float32
    grows_v: float32
    sums_o: float32


def lower(x: np.ndarray, e: np.ndarray, heads: network.Heads, w: dict, cfg: dict) -> Lower:
    """Return the Lower of states x, whose errors are at most e long."""
    D, H = cfg["d_model"], cfg["n_heads"]
    K, scale, found, by = D // H, scale_of(w, "attention_norm"), {}, {}

    def sizes(at: slice) -> tuple:
        normed = standard(x[at], e[at], w, "attention_norm", cfg["norm_epsilon"])
        return normed.e, length((normed.size @ absolute).reshape(-1, 3 * H, K))

    matrices = network.projections(w, cfg)
    absolute = np.abs(np.concatenate([*matrices.values()], axis=1)).astype(float32)
    normed_e, size = network.each_batch(sizes, len(x))
    for (name, W_DD), part, size_MH in zip(matrices.items(), heads, np.split(size, 3, axis=1), strict=True):
        by[name] = W_DHK = (scale[:, None] * W_DD).reshape(D, H, K)
        grows, sums = (np.array([spectral(f(W_DHK[:, h])) for h in range(H)]) for f in (np.asarray, np.abs))
        local = rounded(D + 5, size_MH + sums * normed_e[:, None])
        found[name] = local, local + grows * normed_e[:, None], length(part)
    query, key = lengthened(heads.k, by["query"]), lengthened(heads.q, by["key"])
    tokens = np.stack([query, *found["key"], *found["value"]], axis=1).astype(float32)
    own = np.stack([key, *found["query"]], axis=1).astype(float32)
    W_o = w["attention.output"].reshape(D, D)
    through = np.einsum("dhk,hkj->hdj", by["value"], W_o.reshape(H, K, D)).reshape(H, -1)
    grows = spectral(W_o), spectral(by["value"].reshape(D, D)), spectral(np.abs(W_o))
    return Lower(normed_e, tokens, own, padded(through @ through.T).astype(float32), *grows)


def padded(forms: np.ndarray) -> np.ndarray:
    """Return quadratic forms (H, H, ...) with as much on their diagonals as float32 may lose of them."""
    H, size = len(forms), np.sqrt(np.square(forms).sum((0, 1)))
    forms = forms.copy()
    forms[np.arange(H), np.arange(H)] += gamma(4 * H * H) * size
    return forms


class Attended(NamedTuple):
    """The parts of the errors of states after attention, and the weights."""

    e: np.ndarray  # (N,) length of the error
    mean: np.ndarray  # (N, H) length of the error of each head's weighted sum, but for what `read` leads to
    rest: np.ndarray  # (N,) length of the error of y, but for what `read` and `mean` lead to
    weight: np.ndarray  # (N, W, H)
    read: np.ndarray  # (N, W) length of the error of each normed state that is read
    by_read: np.ndarray  # (N, W) what it may grow by until y


def attended(
    found: network.Attention,
    heads: network.Heads,
    below: Lower,
    row: np.ndarray,
    w: dict,
    size_x: np.ndarray,
    e_x: np.ndarray,
) -> Attended:
    """Return the Attended of a batch: the row and the Attention as of network.attend.

    size_x, e_x: (N,) lengths of the states that the heads are added to, and of their errors.
    """
    (N, W), (H, K) = row.shape, heads.q.shape[1:]
    mean, score, weight = (part.astype(float32) for part in (found.mean.reshape(N, H, K), found.score, found.weight))
    by_own, lq_own, dq_own, size_own = below.query[row[:, 0]].swapaxes(0, 1)
    e_own, bias = below.e[row[:, 0], None], np.abs(w["bias"]).astype(float32)
    ds, known = np.zeros_like(score), (row >= 0).T
    tokens, read = [below.tokens[row[:, o]].swapaxes(0, 1) for o in range(W)], below.e[row.T] * known
    for o, (by_query, lk, dk, size_k, *_) in enumerate(tokens):
        ds_o = read[o, :, None] * by_own + size_own * lk + dk * dq_own + e_own * by_query + size_k * lq_own
        ds_o += rounded(K + 3, (size_own + dq_own) * (size_k + dk) + bias[:, o])
        ds[o] = np.where(known[o, :, None], ds_o * (1 + 2 * U), 0.0)
    far = np.where(np.isfinite(score), np.abs(score - score.max(0)), 0.0)
    ds += FUNCTION + 3 * U * (far + 2 * ds.max(0))
    moves = weight * np.expm1(ds) / (weight * np.exp(-ds)).sum(0)
    dv_any = np.max([np.where(known[o, :, None], tokens[o][5], 0.0) for o in range(W)], axis=0)
    size_mean, any_move = length(mean), moves.sum(0)
    e_mean = moves[W] * size_mean + any_move * dv_any  # below W + 8, not W + 4: v - mean is itself of float32
    for o, (*_, lv, dv, size_v) in enumerate(tokens):
        e_mean += moves[o] * (length(heads.v[row[:, o]].astype(float32) - mean) + dv_any)
        e_mean += weight[o] * lv + rounded(W + 8, (weight[o] * (1 + any_move) + moves[o]) * (size_v + dv))
    e_mean = float32(SLACK) * (e_mean + float32(gamma(W + 8) + 2 * FUNCTION) * (size_mean + e_mean))
    size = below.sums_o * (length(size_mean) + length(e_mean) + below.grows_v * read.max(0)) + size_x + e_x
    rest = float32(SLACK) * (e_x + rounded(H * K + 2, size))
    by_read = np.sqrt(np.maximum(np.einsum("onh,onh->on", weight[:W], weight[:W] @ below.forms), 0.0))
    growth = np.minimum(by_read, below.grows_o * below.grows_v * weight[:W].max(2))
    e = float32(SLACK) * (rest + below.grows_o * length(e_mean) + (read * growth).sum(0))
    return Attended(e, e_mean, rest, weight[:W].swapaxes(0, 1), read.T, by_read.T)


class Units(NamedTuple):
    """The matrices by which hidden units err; (D, F) and (F,)."""

    columns: np.ndarray  # W_1 times the scale of the norm
    absolute: np.ndarray  # (D + 2, F) the sizes of W_1, of b_1, and what an error of r is multiplied by
    length: np.ndarray  # of the columns
    constant: np.ndarray  # what h is where r is 0
    sums: float32  # what |W_2| lengthens a vector by at most


def units(w: dict) -> Units:
    """Return the Units of a layer."""
    W_1, b_1 = w["feedforward.expand.weight"], w["feedforward.expand.bias"]
    columns = scale_of(w, "feedforward_norm")[:, None] * W_1
    absolute = np.vstack([np.abs(W_1), np.abs(b_1), length(columns, 0)]).astype(float32)
    constant = np.broadcast_to(bias_of(w, "feedforward_norm"), len(W_1)) @ W_1 + b_1
    sums = spectral(np.abs(w["feedforward.contract.weight"]))
    return Units(columns, absolute, absolute[-1], constant.astype(float32), sums)


def local(normed: Normed, absolute: np.ndarray) -> np.ndarray:
    """Return the rounding of products of norm(x) with a matrix; absolute: as in Units."""
    sizes = np.column_stack([normed.size, np.ones(len(normed.e), float32), normed.e])
    return rounded(len(absolute) + 3, sizes @ absolute)


def turned(h: np.ndarray, dh: np.ndarray) -> np.ndarray:
    """Return how far relu(h) may move."""
    return np.maximum(np.minimum(dh, h + dh), float32(0))


def summed(size_y: np.ndarray, h: np.ndarray, moved: np.ndarray, of: Units, w: dict) -> np.ndarray:
    """Return the length of the rounding of the sums of the states after a layer; moved: how far relu(h) may move."""
    W_2, b_2 = w["feedforward.contract.weight"], w["feedforward.contract.bias"]
    size = of.sums * (length(np.maximum(h, float32(0))) + length(moved)) + size_y + float32(length(b_2))
    return rounded(len(W_2) + 3, size)


def states(
    x: np.ndarray, e: np.ndarray, seen: np.ndarray, w: dict, cfg: dict, onto: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the states after a layer, as network.block does, and the lengths of their errors."""
    heads, of = network.project(x, w, cfg), units(w)
    below, residual = lower(x, e, heads, w, cfg), onto is None
    W_2 = w["feedforward.contract.weight"]
    grows_2 = spectral(W_2)

    def batch(at: slice) -> tuple:
        row = seen[at]
        base = x[row[:, 0]] if onto is None else onto[at]
        found = network.attend(heads, row, base, w)
        bound = attended(found, heads, below, row, w, length(base).astype(float32), e[row[:, 0]] * residual)
        h = network.hidden(found.y, w, cfg)
        z = network.contract(h, w) + found.y * residual
        normed, h = standard(found.y, bound.e, w, "feedforward_norm", cfg["norm_epsilon"]), h.astype(float32)
        made = local(normed, of.absolute)
        dh = float32(SLACK) * (normed.e[:, None] * of.length + made)
        rest = summed(residual * (length(found.y).astype(float32) + bound.e), h, turned(h, dh), of, w)
        apart = np.where(h > 0, made, float32(0)) + np.maximum(dh - np.abs(h), float32(0))
        return z, residual * bound.e + grows_2 * length(apart) + rest, np.packbits(h > 0, axis=1), normed.e

    z, errors, on, e_normed = network.each_batch(batch, len(seen))
    masks, mask_of = np.unique(on, axis=0, return_inverse=True)
    return z, float32(SLACK) * (errors + growth(masks, of.columns, W_2)[mask_of.ravel()] * e_normed)


def growth(masks: np.ndarray, W_1: np.ndarray, W_2: np.ndarray) -> np.ndarray:
    """Return the factor by which W_1 M W_2 lengthens a vector at most, for masks M of units that are on, as bits."""
    # Products in float32 lose less than this share of the product of the sizes.
    lost = gamma(2 * len(W_2)) * np.linalg.norm(W_1) * np.linalg.norm(W_2)
    W_1, W_2 = W_1.astype(float32), W_2.astype(float32)

    def batch(at: slice) -> np.ndarray:
        on = np.unpackbits(masks[at], axis=1, count=len(W_2)).astype(float32)
        A = ((on[:, None] * W_1).reshape(-1, len(W_2)) @ W_2).reshape(len(on), *(2 * [len(W_1)]))
        return length((A @ A.swapaxes(1, 2)).reshape(len(A), -1)) ** 0.5

    return float32(1 + 1e-4) * network.each_batch(batch, len(masks), MASKS) + float32(2 * lost)
