"""How far a layer that float32 computes can be from the exact one, from the sums and products it is made of.

A float32 computation may add in any order, fused or not. A sum, product or quotient is right to a share of U = 2^-24;
exp, square root and reciprocal are right to FUNCTION. A sum of n products a b errs by gamma(n) sum |a b| at most, where
gamma(n) = n U / (1 - n U) (Higham 2002, 3.1). Such errors are made everywhere, and what comes after carries them on.
Here the error of a state is known by its length alone: it is x + dx, with |dx| <= e. Three things keep bounds small:

- Along a direction c, T dx is at most |T'c| e. The directions that matter are known in advance (rounding.py). Of each,
  |T'c|^2 is a quadratic form of the attention weights.
- If scores move by ds, the mean of the values moves by no more than
  sum_o w_o (e^ds_o - 1) |v_o - mean| / sum_o w_o e^-ds_o.
- relu(h + dh) - relu(h) is dh above |dh| and 0 below -|dh|. So a feed-forward part is a linear map W_1 M W_2, where M
  has the units that are on. What a vector grows by is at most tr((A A')^2)^(1/4), which is computed for each M.

What may overflow has no bound. Left out are underflow, and the rounding of float64 here, which SLACK covers.
"""

from typing import NamedTuple

import numpy as np

U = 2.0**-24
FUNCTION = 8 * U  # 4 units in the last place
SLACK = 1.01
LARGEST = 2.0**60  # length of a state whose squares float32 can add
BATCH = 2**12  # strings at once
MASKS = 2**8


def gamma(n):
    """The share of sum |a b| by which a sum of n products may err."""
    return n * U / (1 - n * U)


def rounded(n, size):
    """By how much sums of n products may err, whose sizes add up to this; infinite where they may overflow."""
    return np.where(size < LARGEST**2, gamma(n) * size, np.inf)


def length(x, axis=-1):
    """The Euclidean length."""
    x = np.moveaxis(x, axis, -1)
    return np.sqrt(np.einsum("...d,...d->...", x, x))


def spectral(matrix):
    """What a vector grows by at most."""
    return SLACK * np.linalg.norm(matrix, 2)


def mapped(x, matrices):
    """The lengths |W x| of each head, (N, H): x (N, H, K), matrices W (D, H, K)."""
    forms = np.einsum("dhk,dhl->hkl", matrices, matrices)
    return np.sqrt(np.maximum(np.einsum("hnk,nhk->nh", x.swapaxes(0, 1) @ forms, x), 0.0))


class Normed(NamedTuple):
    """norm(x) = r * scale + bias with r = (x - mean) / s. In a model without norms r is x, and s is 1."""

    r: np.ndarray  # (N, D)
    s: np.ndarray  # (N,)
    change: np.ndarray  # (N,) how far s may change
    least: np.ndarray  # (N,) of s
    e: np.ndarray  # (N,) length of the error of r
    local: np.ndarray  # (N,) of this, what the norm itself adds
    n: np.ndarray  # (N, D) norm(x)
    size: np.ndarray  # (N, D) |r * scale| + |bias|, of which the rounding of norm(x) is a share


def scale_of(w, name):
    """What r is multiplied by, (D,), or (1,) in a model without norms."""
    return w.get(f"{name}.scale", np.ones(1))


def standard(x, e, w, name, epsilon):
    """The Normed of states whose errors are at most e long: the derivative of r by x has norm 1/s at most."""
    one, none, D = np.ones(len(x)), np.zeros(len(x)), x.shape[1]
    e = np.where(length(x) + e < LARGEST, e, np.inf)
    if f"{name}.scale" not in w:
        return Normed(x, one, none, one, e, none, x, np.abs(x))
    scale, bias, mean = w[f"{name}.scale"], w[f"{name}.bias"], x.mean(-1, keepdims=True)
    s = np.sqrt(np.square(x - mean).mean(-1) + epsilon)
    r, change = (x - mean) / s[:, None], e / D**0.5
    least = np.maximum(s - change, epsilon**0.5)
    shift = gamma(D + 8) * (np.abs(x).mean(-1) + change)  # of the mean, which a reciprocal of D may divide
    share = gamma(D + 12) / 2 + np.square(shift / least) + 2 * FUNCTION + 2 * U
    local = SLACK * D**0.5 * (shift / least + share)  # no r is longer than sqrt(D)
    return Normed(r, s, change, least, e / least + local, local, r * scale + bias, np.abs(r * scale) + np.abs(bias))


class Attended(NamedTuple):
    """States after attention, and the parts of their errors."""

    y: np.ndarray  # (N, D)
    e: np.ndarray  # (N,) length of the error
    weight: np.ndarray  # (N, H, W)
    read: np.ndarray  # (N, W) length of the error of each normed state that is read
    mean: np.ndarray  # (N, H) length of the error of each head's mean, but for what `read` leads to
    rest: np.ndarray  # (N,) length of the error of y, but for what `read` and `mean` lead to


def attend(x, e, seen, w, cfg, onto=None):
    """Yield (slice, Attended) of all rows of `seen`, from the states x, whose errors are at most e long: network.block.

    onto: as there, without errors.
    """
    D, H, W = cfg["d_model"], cfg["n_heads"], seen.shape[1]
    K, normed, scale = D // H, standard(x, e, w, "attention_norm", cfg["norm_epsilon"]), scale_of(w, "attention_norm")
    bias, share, found = w["bias"], gamma(W + 4) + 2 * FUNCTION, []
    for name in ("query", "key", "value"):
        W_DD = w[f"attention.{name}"].reshape(D, D)
        if name == "query" and cfg.get("similarity", "scaled_dot") == "scaled_dot":
            W_DD = W_DD / K**0.5
        W_DHK = (scale[:, None] * W_DD).reshape(D, H, K)
        grows, sums = (np.array([spectral(f(W_DHK[:, h])) for h in range(H)]) for f in (np.asarray, np.abs))
        size = length((normed.size @ np.abs(W_DD)).reshape(-1, H, K)) + sums * normed.e[:, None]
        local = rounded(D + 5, size)
        found.append(((normed.n @ W_DD).reshape(-1, H, K), W_DHK, local, local + grows * normed.e[:, None]))
    (q, W_q, lq, dq), (k, W_k, lk, dk), (v, W_v, lv, dv) = found
    size_q, size_k, size_v = length(q), length(k), length(v)
    by_key, by_query = mapped(q, W_k), mapped(k, W_q)
    W_o = w["attention.output"].reshape(D, D)
    through = np.einsum("dhk,hkj->hdj", W_v, W_o.reshape(H, K, D)).reshape(H, -1)
    forms = through @ through.T  # |sum_h weight_h W_v W_o|^2, of all entries, as a quadratic form
    grows_o, grows_v, sums_o = spectral(W_o), spectral(W_v.reshape(D, D)), spectral(np.abs(W_o))
    for at in (slice(first, min(first + BATCH, len(seen))) for first in range(0, len(seen), BATCH)):
        row, own = seen[at], seen[at, 0]
        e_own, q_own, dq_own, lq_own = normed.e[own, None], q[own], dq[own], lq[own]
        by_own, size_own = by_key[own], size_q[own]
        score, ds = np.full((len(row), H, W + 1), -np.inf), np.zeros((len(row), H, W + 1))
        for o in range(W):
            key, known = row[:, o], row[:, o, None] >= 0
            dk_o, size_o = dk[key], size_k[key]
            ds_o = normed.e[key, None] * by_own + size_own * lk[key] + dk_o * dq_own
            ds_o += e_own * by_query[key] + size_o * lq_own
            size = (size_own + dq_own) * (size_o + dk_o) + np.abs(bias[:, o])
            ds_o = (ds_o + rounded(K + 3, size)) * (1 + 2 * U)
            score[..., o] = np.where(known, np.einsum("nhk,nhk->nh", q_own, k[key]) + bias[:, o], -np.inf)
            ds[..., o] = np.where(known, ds_o, 0.0)
        score[..., W] = w.get("attention.sink", -np.inf)  # a key whose value is 0
        top = score.max(-1, keepdims=True)
        ds += FUNCTION + 3 * U * (
            np.where(np.isfinite(score), np.abs(score - top), 0.0) + 2 * ds.max(-1, keepdims=True)
        )
        weight = np.exp(score - top)
        weight /= weight.sum(-1, keepdims=True)
        moves = weight * np.expm1(ds) / (weight * np.exp(-ds)).sum(-1, keepdims=True)
        mean = sum(weight[..., o, None] * v[row[:, o]] for o in range(W))
        dv_any = np.where(row[..., None] < 0, 0.0, dv[row]).max(1)
        e_mean, any_move = moves[..., W] * length(mean) + moves.sum(-1) * dv_any, moves.sum(-1)
        for o in range(W):
            key = row[:, o]
            e_mean += moves[..., o] * (length(v[key] - mean) + dv_any)
            most = weight[..., o] * (1 + any_move) + moves[..., o]
            e_mean += weight[..., o] * lv[key] + rounded(W + 4, most * (size_v[key] + dv[key]))
        e_mean = SLACK * (e_mean + share * (length(mean) + e_mean))
        mean, weight, read = mean.reshape(-1, D), weight[..., :W], normed.e[row] * (row >= 0)
        base, e_base = (x[own], e[own]) if onto is None else (onto[at], 0.0)
        size = sums_o * (length(mean) + length(e_mean) + grows_v * read.max(1)) + length(base) + e_base
        rest = SLACK * (e_base + rounded(D + 2, size))
        by_read = np.sqrt(np.einsum("nho,nho->no", weight, forms @ weight))
        by_read = np.minimum(by_read, grows_o * grows_v * weight.max(1))
        e_y = rest + grows_o * length(e_mean) + (read * by_read).sum(1)
        yield at, Attended(base + mean @ W_o, SLACK * e_y, weight, read, e_mean, rest)


class Directions(NamedTuple):
    """What is known in advance of directions c, the columns of a matrix, in which states after attention err."""

    columns: np.ndarray  # (D, J)
    length: np.ndarray  # (J,)
    by_head: np.ndarray  # (H, J) |W_o c| of each head
    forms: np.ndarray  # (H H, J) |sum_h weight_h W_v W_o c|^2 as a quadratic form
    mean: np.ndarray  # (H, H) of all forms


def directions(columns, normed, w):
    """Directions of columns (D, J), without their mean where a norm subtracts the mean of what it is given."""
    columns = columns - columns.mean(0) * normed
    through_o = np.einsum("hkd,dj->hkj", w["attention.output"], columns)
    through_v = np.einsum("dhk,hkj->hdj", scaled_value(w), through_o)
    forms = np.einsum("hdj,gdj->hgj", through_v, through_v)
    flat = forms.reshape(-1, columns.shape[1])
    return Directions(columns, length(columns, 0), length(through_o, 1), flat, forms.mean(-1))


def scaled_value(w):
    """W_v, (D, H, K), as r of the norm before it meets it."""
    return w["attention.value"] * scale_of(w, "attention_norm")[:, None, None]


def along(attended, known):
    """How far states err along directions, (N, J).

    By Cauchy and Schwarz, sum_o e_o f_o(c) <= sqrt(sum_o e_o g_o) sqrt(sum_o e_o f_o(c)^2 / g_o), for any g_o > 0.
    """
    weight, read = attended.weight, attended.read
    g = np.sqrt(np.einsum("nho,nho->no", weight, known.mean @ weight)) + 1e-12
    forms = ((weight * (read / g)[:, None]) @ weight.swapaxes(1, 2)).reshape(len(weight), -1)
    squares = (read * g).sum(1)[:, None] * np.maximum(forms @ known.forms, 0.0)
    return SLACK * (np.sqrt(squares) + attended.mean @ known.by_head + attended.rest[:, None] * known.length)


def along_each(attended, columns, w):
    """How far states err, each along a direction of its own: columns (N, D)."""
    through_o = np.einsum("hkd,nd->nhk", w["attention.output"], columns)
    through_v = np.einsum("dhk,nhk->nhd", scaled_value(w), through_o)
    far = (length(np.einsum("nho,nhd->nod", attended.weight, through_v)) * attended.read).sum(1)
    return SLACK * (far + (attended.mean * length(through_o)).sum(1) + attended.rest * length(columns))


def hidden(attended, w, cfg):
    """(the Normed, hidden units before the activation, the rounding of their sums) of states after attention."""
    normed = standard(attended.y, attended.e, w, "feedforward_norm", cfg["norm_epsilon"])
    W_1, b_1 = w["feedforward.expand.weight"], w["feedforward.expand.bias"]
    size = normed.size @ np.abs(W_1) + np.abs(b_1)
    size += normed.e[:, None] * length(scale_of(w, "feedforward_norm")[:, None] * W_1, 0)
    return normed, normed.n @ W_1 + b_1, rounded(len(W_1) + 5, size)


def turned(h, dh):
    """How far relu(h) may move."""
    return np.maximum(np.minimum(dh, h + dh), 0.0)


def contracted(attended, h, dh, w, residual=True):
    """(the states after a layer, the length of the rounding of their sums), of hidden units that err by dh at most."""
    y, e = (attended.y, attended.e) if residual else (np.zeros((1, 1)), 0.0)
    W_2, b_2, on = w["feedforward.contract.weight"], w["feedforward.contract.bias"], np.maximum(h, 0.0)
    size = spectral(np.abs(W_2)) * (length(on) + length(turned(h, dh))) + length(y) + e + length(b_2)
    return y + on @ W_2 + b_2, rounded(len(W_2) + 3, size)


def states(x, e, seen, w, cfg, onto=None):
    """Return the states after a layer, and the lengths of their errors."""
    residual = onto is None
    found, errors, e_normed = np.empty((len(seen), cfg["d_model"])), np.empty(len(seen)), np.empty(len(seen))
    columns = scale_of(w, "feedforward_norm")[:, None] * w["feedforward.expand.weight"]
    W_2, on = w["feedforward.contract.weight"], np.empty((len(seen), columns.shape[1]), bool)
    for at, attended in attend(x, e, seen, w, cfg, onto):
        normed, h, local = hidden(attended, w, cfg)
        dh = SLACK * (length(columns, 0) * normed.e[:, None] + local)
        found[at], summed = contracted(attended, h, dh, w, residual)
        on[at], e_normed[at] = h > 0, normed.e
        apart = np.where(on[at], local, 0.0) + np.maximum(dh - np.abs(h), 0.0)
        errors[at] = residual * attended.e + spectral(W_2) * length(apart) + summed
    masks, mask_of = np.unique(np.packbits(on, axis=1), axis=0, return_inverse=True)
    masks, grows = np.unpackbits(masks, axis=1, count=on.shape[1]).astype(np.float64), np.empty(len(masks))
    for some in (slice(first, first + MASKS) for first in range(0, len(masks), MASKS)):
        A = (masks[some][:, None] * columns) @ W_2
        grows[some] = length((A @ A.swapaxes(1, 2)).reshape(len(A), -1)) ** 0.5
    return found, SLACK * (errors + grows[mask_of.ravel()] * e_normed)
