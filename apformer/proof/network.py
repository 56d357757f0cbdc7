"""Compute the network in numpy and float64, by its equations, for the strings of tokens that a prediction depends on.

A string is coded as a number: its newest token is the lowest digit, and the base is the vocabulary size plus one (12
for ten digits and the space). The output of a layer at a token is a function of a shorter string, which many strings
share. So each layer is computed once for each distinct string, as a table in which the next layer looks up its keys.
The module of contexts says in `reads` which places of a string a layer reads; -1 stands for the tokens before a row.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

BATCH = 2**12  # strings computed at once: the fastest of 2**10 to 2**13 on an AMD EPYC
# Where OpenBLAS itself has one thread, each of ours computes a batch; otherwise both would wait for each other.
THREADS = min(os.cpu_count() or 1, 16) if os.environ.get("OPENBLAS_NUM_THREADS") == "1" else 1
COMPUTED = {  # values of a Config that this file computes; a Config without the field has the first
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


def unsupported(cfg: dict, contexts: ModuleType) -> str | None:
    """Return a sentence about the first field of a Config that is not computed; None if all are.

    A module of contexts may name other values in its own COMPUTED.
    """
    for name, values in (COMPUTED | getattr(contexts, "COMPUTED", {})).items():
        if cfg.get(name, values[0]) not in values:
            return f"{name} is {cfg[name]}, and only {' or '.join(map(str, values))} is computed"
    if not 0 < cfg["norm_epsilon"] < 1:
        return f"norm_epsilon is {cfg['norm_epsilon']}, and only numbers between 0 and 1 are computed"
    if hasattr(contexts, "reads"):
        tokens = int(contexts.reads(cfg, cfg["n_layers"]).max()) + 2
        if (cfg["vocab_size"] + 1) ** tokens >= 2**63:
            return "a prediction depends on more tokens than a number of 64 bits holds"
    return None


def shapes(cfg: dict, contexts: ModuleType) -> dict[str, tuple[int, ...]]:
    """Return {name: shape} of all weights of a Config; those of the blocks are stacked, with the layers first."""
    L, D, H, V = (cfg[name] for name in ("n_layers", "d_model", "n_heads", "vocab_size"))
    K, F, tied = D // H, cfg["d_ff"] or 4 * D, cfg["tie_embeddings"]
    shapes = {"embedding.table": (V, D), "blocks.attention.value": (L, D, H, K)}
    shapes |= {"blocks.feedforward.expand.weight": (L, D, F), "blocks.feedforward.expand.bias": (L, F)}
    shapes |= {"blocks.feedforward.contract.weight": (L, F, D), "blocks.feedforward.contract.bias": (L, D)}
    if cfg.get("similarity") != "none":
        shapes |= {"blocks.attention.query": (L, D, H, K), "blocks.attention.key": (L, D, H, K)}
    if cfg["output_projection"]:
        shapes["blocks.attention.output"] = L, H, K, D
    if cfg["attention_sink"]:
        shapes["blocks.attention.sink"] = L, H
    if hasattr(contexts, "bias"):
        shapes[f"blocks.{contexts.bias(cfg)}"] = L, H, len(contexts.reads(cfg, 1))
    if cfg["norm"] == "layer":
        shapes |= dict.fromkeys(("blocks.attention_norm.scale", "blocks.attention_norm.bias"), (L, D))
        if cfg.get("feedforward_norm", True):
            shapes |= dict.fromkeys(("blocks.feedforward_norm.scale", "blocks.feedforward_norm.bias"), (L, D))
    if cfg["final_norm"]:
        shapes |= {"final_norm.scale": (D,), "final_norm.bias": (D,)}
    if cfg.get("position") == "learned":
        shapes["position.table"] = cfg["max_len"], D
    if not tied:
        shapes["head.output.weight"] = D, V
    if cfg.get("head_bias", True):
        shapes["head.bias" if tied else "head.output.bias"] = (V,)
    return shapes


def complete(weights: dict[str, np.ndarray], cfg: dict, contexts: ModuleType) -> dict[str, np.ndarray]:
    """Return the weights in float64. Weights that the model does not have are filled in so that they change nothing.

    Missing queries and keys are 0, a missing output projection concatenates the heads, tied embeddings become the head.
    """
    table, L = weights["embedding.table"], len(weights["blocks.feedforward.expand.weight"])
    D, H, V = table.shape[1], cfg["n_heads"], len(table)
    default = dict.fromkeys(("blocks.attention.query", "blocks.attention.key"), np.zeros((L, D, H, D // H)))
    default |= {"head.output.weight": table.T, "head.output.bias": weights.get("head.bias", np.zeros(V))}
    default |= {"blocks.attention.output": np.tile(np.eye(D).reshape(H, D // H, D), (L, 1, 1, 1))}
    default |= {"blocks.bias": weights[f"blocks.{contexts.bias(cfg)}"]} if hasattr(contexts, "bias") else {}
    return {name: np.asanyarray(array, np.float64) for name, array in (default | weights).items()}


def norm(x: np.ndarray, weights: dict, name: str, epsilon: float) -> np.ndarray:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias, or x where the model has no such norm."""
    if f"{name}.scale" not in weights:
        return x
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt(np.einsum("nd,nd->n", x, x) / x.shape[1] + epsilon)[:, None]
    x *= weights[f"{name}.scale"]
    x += weights[f"{name}.bias"]
    return x


def map_batches(function: Callable[[slice], Any], count: int, size: int = BATCH) -> Any:
    """Call a function for each batch of `count` rows, in threads, and concatenate the array or arrays it returns.

    Numbers may overflow without a warning: margins and bounds that are not finite prove nothing.
    """

    def compute(first: int) -> Sequence[np.ndarray]:
        with np.errstate(all="ignore"):
            found = function(slice(first, first + size))
        return [found] if isinstance(found, np.ndarray) else found

    def store(first: int) -> None:
        for array, part in zip(arrays, compute(first) if first else begun, strict=True):
            array[first : first + len(part)] = part

    begun = compute(0)
    arrays = [np.empty_like(part, shape=(count, *part.shape[1:])) for part in begun]  # not all batches and a copy
    with ThreadPoolExecutor(THREADS) as pool:
        deque(pool.map(store, range(0, count, size)), 0)
    return arrays if len(arrays) > 1 else arrays[0]


class Heads(NamedTuple):
    """Queries, keys and values of the M strings whose states a layer reads, (M, H, K) each."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def projections(w: dict, cfg: dict) -> dict[str, np.ndarray]:
    """Return the matrices of queries, keys and values, (D, D) each, with the scale 1/sqrt(K) of scores in the first."""
    D = cfg["d_model"]
    matrices = {name: w[f"attention.{name}"].reshape(D, D) for name in ("query", "key", "value")}
    if cfg.get("similarity", "scaled_dot") == "scaled_dot":
        matrices["query"] = matrices["query"] / (D // cfg["n_heads"]) ** 0.5
    return matrices


def project(x: np.ndarray, w: dict, cfg: dict) -> Heads:
    """Return the queries, keys and values of states x (M, D) before a layer."""
    W, H = np.concatenate([*projections(w, cfg).values()], axis=1), cfg["n_heads"]

    def batch(at: slice) -> list[np.ndarray]:
        product = norm(x[at], w, "attention_norm", cfg["norm_epsilon"]) @ W
        return np.split(product.reshape(len(product), 3 * H, -1), 3, axis=1)

    return Heads(*map_batches(batch, len(x)))


class Attention(NamedTuple):
    """The attention of a batch of N strings, each of which reads W keys and the sink."""

    score: np.ndarray  # (W + 1, N, H) of each key, the sink last
    weight: np.ndarray  # (W + 1, N, H) softmax of the scores
    mean: np.ndarray  # (N, D) weighted sum of the values of each head
    y: np.ndarray  # (N, D) state after attention


def attend(heads: Heads, row: np.ndarray, x: np.ndarray, w: dict) -> Attention:
    """Compute attention for a batch: score(o) = q . k_o + bias[o], y = x + (weighted sum of v) W_o.

    Args:
        heads: Queries, keys and values of all strings below.
        row: (N, W) the rows of `heads` that each string reads, its newest token first; -1 for none.
        x: (N, D) states to which the output is added.
        w: Weights of the layer.
    """
    (N, W), H = row.shape, heads.q.shape[1]
    score, q = np.empty((W + 1, N, H)), heads.q[row[:, 0]]
    for o in range(W):
        np.einsum("nhk,nhk->nh", q, heads.k[row[:, o]], out=score[o])
        score[o] += w["bias"][:, o]
        score[o, row[:, o] < 0] = -np.inf
    score[W] = w.get("attention.sink", -np.inf)  # a key whose value is 0
    weight = np.exp(score - score.max(0))
    weight /= weight.sum(0)
    mean = np.einsum("onh,nohk->nhk", weight[:W], heads.v[row]).reshape(N, -1)
    return Attention(score, weight, mean, x + mean @ w["attention.output"].reshape(mean.shape[1], -1))


def hidden(y: np.ndarray, w: dict, cfg: dict) -> np.ndarray:
    """Return the hidden units before the activation, norm(y) W_1 + b_1."""
    normed = norm(y, w, "feedforward_norm", cfg["norm_epsilon"])
    return normed @ w["feedforward.expand.weight"] + w["feedforward.expand.bias"]


def contract(h: np.ndarray, w: dict) -> np.ndarray:
    """Return relu(h) W_2 + b_2."""
    return np.maximum(h, 0.0) @ w["feedforward.contract.weight"] + w["feedforward.contract.bias"]


def block(x: np.ndarray, seen: np.ndarray, w: dict, cfg: dict, onto: np.ndarray | None = None) -> np.ndarray:
    """Return the states after a layer, z = y + contract(hidden(y)).

    Args:
        x: (M, D) states before the layer.
        seen: (N, W) the row of x of each token that a string reads, its newest first; -1 for none.
        w: Weights of the layer.
        cfg: Config of the model.
        onto: (N, D) in a model without residuals: y = onto + attention, z = contract(hidden(y)).
    """
    heads = project(x, w, cfg)

    def batch(at: slice) -> np.ndarray:
        y = attend(heads, seen[at], x[seen[at, 0]] if onto is None else onto[at], w).y
        z = contract(hidden(y, w, cfg), w)
        return z + y if onto is None else z

    return map_batches(batch, len(seen))


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the sorted distinct values of an integer array, forty times as fast as np.unique, which hashes them."""
    numbers = np.sort(numbers, axis=None)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def look_up(codes: np.ndarray, places: np.ndarray, base: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (seen, below): `below` lists the distinct strings that a layer reads, `seen` their rows for each code.

    Args:
        codes: (N,) strings of the layer.
        places: Places in a string that each key depends on, (W, tokens).
        base: Radix of the codes; its last digit stands for tokens before the row.
    """

    def parts(at: slice) -> np.ndarray:
        token = {place: codes[at] // base**place % base if place >= 0 else base - 1 for place in set(places.flat)}
        return np.stack([sum(token[place] * base**o for o, place in enumerate(key)) for key in places], 1)

    def rows(at: slice) -> np.ndarray:
        return np.where(part[at] % base == base - 1, -1, np.searchsorted(below, part[at]))

    part = map_batches(parts, len(codes))
    below = distinct(part)
    below = below[below % base != base - 1]
    return map_batches(rows, len(part)), below


def layers(codes: np.ndarray, weights: dict, cfg: dict, contexts: ModuleType) -> tuple[np.ndarray, list]:
    """List the distinct strings for which each layer is computed.

    Returns:
        (tokens, [(seen, weights of the layer) for each layer]). tokens (M,) are the strings of one token, whose
        embeddings the first layer reads. seen (N, W) holds the rows of the states below that each of the N strings of
        a layer reads; -1 stands for tokens before the row. The last layer's strings are `codes`, in their order.
    """
    steps, base = [], cfg["vocab_size"] + 1
    for layer in range(cfg["n_layers"], 0, -1):
        seen, below = look_up(codes, contexts.reads(cfg, layer), base)
        steps, codes = [(seen, of_layer(weights, layer - 1)), *steps], below
    return codes, steps


def of_layer(weights: dict, layer: int) -> dict:
    """Return the weights of a layer, from 0."""
    return {name[7:]: array[layer] for name, array in weights.items() if name.startswith("blocks.")}


def logits(codes: np.ndarray, weights: dict, cfg: dict, contexts: ModuleType) -> np.ndarray:
    """Return the logits of the token after each string: codes (N,) to (N, V)."""
    tokens, steps = layers(codes, weights, cfg, contexts)
    x = weights["embedding.table"][tokens]
    for seen, w in steps:
        x = block(x, seen, w, cfg)
    return map_batches(lambda at: read_out(x[at], weights, cfg), len(x))


def read_out(x: np.ndarray, weights: dict, cfg: dict) -> np.ndarray:
    """Return the logits (N, V) of states (N, D) after the last layer."""
    x = norm(x, weights, "final_norm", cfg["norm_epsilon"])
    return x @ weights["head.output.weight"] + weights["head.output.bias"]
