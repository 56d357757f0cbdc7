"""The network in numpy and float64, as its equations say, for the strings of tokens that a prediction depends on.

A string is a number, its newest token the lowest digit; the base is one more than the vocabulary has tokens, so 12 for
ten digits and the space. The output of a layer at a token is a function of a shorter string, which many strings have in
common. So each layer is computed once for each distinct string: a table, in which the next layer looks up its keys.
The module that lists the contexts says which places of a string a layer reads, in `reads`; -1 stands there for the
tokens before a row.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

BATCH = 2**10  # strings at once, so that what is computed of them stays in a processor's cache
# OpenBLAS with threads of its own waits for them, where each of ours has a batch.
THREADS = min(os.cpu_count() or 1, 16) if os.environ.get("OPENBLAS_NUM_THREADS") == "1" else 1
COMPUTED = {  # values of a Config that this file computes; one without such a field has the first
    "attention_bias": (False,),
    "activation": ("relu",),
    "feedforward": (True,),
    "residual": (True,),
    "feedforward_norm": (True,),
    "norm_position": ("pre",),
    "scale_embedding": (False,),
    "similarity": ("scaled_dot", "dot", "none"),
    "norm": ("layer", "none"),
}


def radix(cfg: dict) -> int:
    """Return the base of strings: one more than there are tokens, the last for all that is before a row."""
    return cfg["vocab_size"] + 1


def beyond(cfg: dict, contexts: ModuleType) -> str | None:
    """Return which part of a Config this file does not compute, in words; None if it computes all.

    A module of contexts without `reads` has `logits` of its own, and says in `fault` what these do not compute.
    """
    if not hasattr(contexts, "reads"):
        return None
    for name, values in COMPUTED.items():
        if cfg.get(name, values[0]) not in values:
            return f"{name} is {cfg[name]}, and {' or '.join(map(str, values))} alone is computed"
    if radix(cfg) ** (int(contexts.reads(cfg, cfg["n_layers"]).max()) + 1) >= 2**63:
        return "a prediction depends on more tokens than a number of 64 bits holds"
    return None


def shapes(cfg: dict, contexts: ModuleType) -> dict[str, tuple[int, ...]]:
    """Return {name: shape} of all weights of a Config; a leading axis holds the layers."""
    L, D, H, V = (cfg[name] for name in ("n_layers", "d_model", "n_heads", "vocab_size"))
    K, F = D // H, cfg["d_ff"] or 4 * D
    names = ("attention_norm", *(("feedforward_norm",) if cfg.get("feedforward_norm", True) else ()))
    norms = names if cfg["norm"] == "layer" else ()
    scored, tied = cfg.get("similarity") != "none", cfg["tie_embeddings"]
    blocks: dict[str, tuple[int, ...]]
    blocks = dict.fromkeys(("attention.query", "attention.key"), (D, H, K)) if scored else {}
    blocks |= {"attention.value": (D, H, K)} | ({"attention.output": (H, K, D)} if cfg["output_projection"] else {})
    blocks |= {"attention.sink": (H,)} if cfg["attention_sink"] else {}
    blocks |= {contexts.bias(cfg): (H, len(contexts.reads(cfg, 1)))} if hasattr(contexts, "bias") else {}
    blocks |= {"feedforward.expand.weight": (D, F), "feedforward.contract.weight": (F, D)}
    blocks |= {"feedforward.expand.bias": (F,), "feedforward.contract.bias": (D,)}
    blocks |= {f"{norm}.{part}": (D,) for norm in norms for part in ("scale", "bias")}
    found = {f"blocks.{name}": (L, *shape) for name, shape in blocks.items()}
    found |= {f"final_norm.{part}": (D,) for part in ("scale", "bias") if cfg["final_norm"]}
    found |= {"position.table": (cfg["max_len"], D)} if cfg.get("position") == "learned" else {}
    found |= {"embedding.table": (V, D)} | ({} if tied else {"head.output.weight": (D, V)})
    return found | ({"head.bias" if tied else "head.output.bias": (V,)} if cfg.get("head_bias", True) else {})


def complete(weights: dict[str, np.ndarray], cfg: dict, contexts: ModuleType) -> dict[str, np.ndarray]:
    """Return the weights in float64, and for those that a smaller model does without such as change nothing.

    Without queries and keys all scores are 0; heads without a projection stand side by side; tied embeddings read out.
    """
    table, L = weights["embedding.table"], len(weights["blocks.feedforward.expand.weight"])
    D, H, V = table.shape[1], cfg["n_heads"], len(table)
    joined = np.tile(np.eye(D).reshape(H, D // H, D), (L, 1, 1, 1))
    none = dict.fromkeys(("blocks.attention.query", "blocks.attention.key"), np.zeros((L, D, H, D // H)))
    none |= {"head.output.weight": table.T, "head.output.bias": weights.get("head.bias", np.zeros(V))}
    none |= {"blocks.attention.output": joined}
    none |= {"blocks.bias": weights[f"blocks.{contexts.bias(cfg)}"]} if hasattr(contexts, "bias") else {}
    return {name: array.astype(np.float64, copy=False) for name, array in (none | weights).items()}


def norm(x: np.ndarray, weights: dict, name: str, epsilon: float) -> np.ndarray:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias, or x where the model has no such norm."""
    if f"{name}.scale" not in weights:
        return x
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt(np.einsum("nd,nd->n", x, x) / x.shape[1] + epsilon)[:, None]
    x *= weights[f"{name}.scale"]
    x += weights[f"{name}.bias"]
    return x


def each_batch(function: Callable[[slice], Any], count: int, size: int = BATCH) -> Any:
    """Return the array, or each of the arrays, that a function returns of `count` rows, computed by batches in threads.

    What overflows proves nothing, which is what it should do.
    """

    def of(first: int) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(slice(first, min(first + size, count)))

    with ThreadPoolExecutor(THREADS) as pool:
        found = [*pool.map(of, range(0, count, size))]
    if isinstance(found[0], np.ndarray):
        return np.concatenate(found)
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


class Heads(NamedTuple):
    """Queries, keys and values of all strings of a layer, (M, H, K) each."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def projections(w: dict, cfg: dict) -> dict[str, np.ndarray]:
    """Return the matrices of queries, keys and values, (D, D) each. Queries are divided by sqrt(K) if scores are."""
    D = cfg["d_model"]
    found = {name: w[f"attention.{name}"].reshape(D, D) for name in ("query", "key", "value")}
    if cfg.get("similarity", "scaled_dot") == "scaled_dot":
        found["query"] = found["query"] / (D // cfg["n_heads"]) ** 0.5
    return found


def project(x: np.ndarray, w: dict, cfg: dict) -> Heads:
    """Return the Heads of states x before a layer."""
    W = np.concatenate([*projections(w, cfg).values()], axis=1)
    found = each_batch(lambda at: norm(x[at], w, "attention_norm", cfg["norm_epsilon"]) @ W, len(x))
    return Heads(*found.reshape(len(x), 3, cfg["n_heads"], -1).swapaxes(0, 1))


class Attention(NamedTuple):
    """The attention of a batch: scores and weights of the keys, the sink last, (W + 1, N, H); the rest is (N, D)."""

    score: np.ndarray
    weight: np.ndarray
    mean: np.ndarray  # weighted sum of the values
    y: np.ndarray  # the state after attention


def attend(heads: Heads, row: np.ndarray, x: np.ndarray, w: dict) -> Attention:
    """Return the Attention of a batch: score(o) = q . k_o + bias[o], y = x + (weighted sum of v) W_o.

    Args:
        heads: Heads of all strings below.
        row: (N, W) rows of them that each string reads, its own first; -1 for none.
        x: (N, D) states that the heads are added to.
        w: Weights of the layer.
    """
    own, (N, W), H = row[:, 0], row.shape, heads.q.shape[1]
    score, q = np.empty((W + 1, N, H)), heads.q[own]
    for o in range(W):
        np.einsum("nhk,nhk->nh", q, heads.k[row[:, o]], out=score[o])
        score[o] += w["bias"][:, o]
        score[o, row[:, o] < 0] = -np.inf
    score[W] = w.get("attention.sink", -np.inf)  # a key whose value is 0
    weight = np.exp(score - score.max(0))
    weight /= weight.sum(0)
    mean = reduce(np.add, (weight[o, :, :, None] * heads.v[row[:, o]] for o in range(W))).reshape(N, -1)
    return Attention(score, weight, mean, x + mean @ w["attention.output"].reshape(mean.shape[1], -1))


def hidden(y: np.ndarray, w: dict, cfg: dict) -> np.ndarray:
    """Return the hidden units before the activation, norm(y) W_1 + b_1."""
    normed = norm(y, w, "feedforward_norm", cfg["norm_epsilon"])
    return normed @ w["feedforward.expand.weight"] + w["feedforward.expand.bias"]


def contract(h: np.ndarray, w: dict) -> np.ndarray:
    """Return relu(h) W_2 + b_2."""
    return np.maximum(h, 0.0) @ w["feedforward.contract.weight"] + w["feedforward.contract.bias"]


def block(x: np.ndarray, seen: np.ndarray, w: dict, cfg: dict, onto: np.ndarray | None = None) -> np.ndarray:
    """Return the states after a layer, z = y + contract(hidden(y)), from the states x before it.

    seen[:, o] is the row of x of the o-th token read, or -1. onto: of a model without residuals, the states that stand
    in the place of x; y is not added then.
    """
    heads = project(x, w, cfg)

    def of(at: slice) -> np.ndarray:
        y = attend(heads, seen[at], x[seen[at, 0]] if onto is None else onto[at], w).y
        z = contract(hidden(y, w, cfg), w)
        return z + y if onto is None else z

    return each_batch(of, len(seen))


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the distinct ones among integers, in order. np.unique hashes them, and takes forty times as long."""
    numbers = np.sort(numbers, axis=None)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def layers(codes: np.ndarray, weights: dict, cfg: dict, contexts: ModuleType) -> tuple[np.ndarray, list]:
    """Return (tokens, [(seen, weights) of each layer]).

    `seen` are the rows of the states below that each string reads; the first layer's states are those of the tokens. A
    row of -1 is before the beginning. The last layer's strings are those of `codes`, in their order.
    """
    found, base = [], radix(cfg)
    for layer in range(cfg["n_layers"], 0, -1):
        places = contexts.reads(cfg, layer)
        token = lambda place: codes // base**place % base if place >= 0 else base - 1  # noqa: B023, E731
        part = np.stack([sum(token(place) * base**o for o, place in enumerate(key)) for key in places], 1)
        below = distinct(part)
        below = below[below % base != base - 1]
        seen = np.where(part % base == base - 1, -1, np.searchsorted(below, part))
        own = {name[7:]: array[layer - 1] for name, array in weights.items() if name.startswith("blocks.")}
        found, codes = [(seen, own), *found], below
    return codes, found


def logits(codes: np.ndarray, weights: dict, cfg: dict, contexts: ModuleType) -> np.ndarray:
    """Return the logits after each of these strings: (strings, vocabulary)."""
    tokens, above = layers(codes, weights, cfg, contexts)
    x = weights["embedding.table"][tokens]
    for seen, own in above:
        x = block(x, seen, own, cfg)
    return read_out(x, weights, cfg)


def read_out(x: np.ndarray, weights: dict, cfg: dict) -> np.ndarray:
    """Return the logits of the last states."""
    x = norm(x, weights, "final_norm", cfg["norm_epsilon"])
    return x @ weights["head.output.weight"] + weights["head.output.bias"]
