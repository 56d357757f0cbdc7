"""The network in numpy and float64, as its equations say, for the strings of tokens that a prediction depends on.

A string is a number, its newest token the lowest digit; the base is one more than the vocabulary has tokens, so 12 for
ten digits and the space. What a layer says of a token is a function of a shorter string, which many strings have in
common. So each layer is computed once for each distinct string: a table, in which the next layer looks up what it
reads. The module that lists the contexts says which places of a string a layer reads, in `reads`; -1 stands there for
what is before a row.
"""

import numpy as np

BATCH = 2**13  # strings of a product
FIXED = {  # what this file does not compute otherwise; a Config without such a field has this value
    "attention_bias": False, "weighting": "softmax", "activation": "relu", "feedforward": True, "residual": True,
    "feedforward_norm": True, "feedforward_bias": True, "norm_position": "pre", "norm_bias": True,
    "scale_embedding": False,
}  # fmt: skip
CHOICES = {"similarity": ("dot", "scaled_dot", "none"), "norm": ("layer", "none")}


def radix(cfg):
    """Return the base of strings: one more than there are tokens, the last for all that is before a row."""
    return cfg["vocab_size"] + 1


def beyond(cfg, contexts):
    """Return what this file does not compute of a Config, in words; None if it computes all."""
    for name, value in FIXED.items():
        if cfg.get(name, value) != value:
            return f"{name} is {cfg[name]}, and {value} alone is computed"
    for name, values in CHOICES.items():
        if cfg.get(name, values[0]) not in values:
            return f"{name} is {cfg[name]}: {', '.join(values)} alone are computed"
    if radix(cfg) ** (int(contexts.reads(cfg, cfg["n_layers"]).max()) + 1) >= 2**63:
        return "a prediction depends on more tokens than a number of 64 bits holds"


def shapes(cfg, contexts):
    """Return {name: shape} of all weights of a Config; a leading axis holds the layers."""
    L, D, H, V = (cfg[name] for name in ("n_layers", "d_model", "n_heads", "vocab_size"))
    K, F = D // H, cfg["d_ff"] or 4 * D
    norms = ("attention_norm", "feedforward_norm") if cfg["norm"] == "layer" else ()
    scored, tied = cfg.get("similarity") != "none", cfg["tie_embeddings"]
    blocks = dict.fromkeys(("attention.query", "attention.key"), (D, H, K)) if scored else {}
    blocks |= {"attention.value": (D, H, K)} | ({"attention.output": (H, K, D)} if cfg["output_projection"] else {})
    blocks |= {"attention.sink": (H,)} if cfg["attention_sink"] else {}
    blocks |= {contexts.bias(cfg): (H, len(contexts.reads(cfg, 1)))}
    blocks |= {"feedforward.expand.weight": (D, F), "feedforward.contract.weight": (F, D)}
    blocks |= {"feedforward.expand.bias": (F,), "feedforward.contract.bias": (D,)}
    blocks |= {f"{norm}.{part}": (D,) for norm in norms for part in ("scale", "bias")}
    found = {f"blocks.{name}": (L, *shape) for name, shape in blocks.items()}
    found |= {f"final_norm.{part}": (D,) for part in ("scale", "bias") if cfg["final_norm"]}
    found |= {"embedding.table": (V, D)} | ({} if tied else {"head.output.weight": (D, V)})
    return found | ({"head.bias" if tied else "head.output.bias": (V,)} if cfg.get("head_bias", True) else {})


def complete(weights, cfg, contexts):
    """Return the weights, and for those that a smaller model does without such as change nothing.

    Without queries and keys all scores are 0; heads without a projection stand side by side; tied embeddings read out.
    """
    table, L = weights["embedding.table"], len(weights["blocks.feedforward.expand.weight"])
    D, H, V = table.shape[1], cfg["n_heads"], len(table)
    joined = np.tile(np.eye(D).reshape(H, D // H, D), (L, 1, 1, 1))
    none = dict.fromkeys(("blocks.attention.query", "blocks.attention.key"), np.zeros((L, D, H, D // H)))
    none |= {"head.output.weight": table.T, "head.output.bias": weights.get("head.bias", np.zeros(V))}
    none |= {"blocks.attention.output": joined, "blocks.bias": weights[f"blocks.{contexts.bias(cfg)}"]}
    return none | weights


def norm(x, weights, name, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, or x where the model has no such norm."""
    if f"{name}.scale" not in weights:
        return x
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
    return x * weights[f"{name}.scale"] + weights[f"{name}.bias"]


def block(x, seen, w, cfg, onto=None):
    """Return the states after a layer, from the states x before it.

    score(o) = q . k_o [/ sqrt(K)] + bias[o]       y = x + (weighted sum of v) W_o
    z = y + relu(norm(y) W_1 + b_1) W_2 + b_2

    seen[:, o] is the row of x of the o-th token read, or -1. onto: of a model without residuals, the states that stand
    in the place of x; y is not added then.
    """
    D, H, W = cfg["d_model"], cfg["n_heads"], seen.shape[1]
    K, normed = D // H, norm(x, w, "attention_norm", cfg["norm_epsilon"])
    bias, products = w["bias"], ("query", "key", "value")
    q, k, v = ((normed @ w[f"attention.{name}"].reshape(D, D)).reshape(-1, H, K) for name in products)
    q, z = q / (K**0.5 if cfg.get("similarity", "scaled_dot") == "scaled_dot" else 1.0), np.empty((len(seen), D))
    for at in (slice(first, first + BATCH) for first in range(0, len(seen), BATCH)):
        row, own = seen[at], seen[at, 0]
        score = np.full((len(own), H, W + 1), -np.inf)  # the last for the sink, a key whose value is 0
        q_own = q[own]
        for o in range(W):
            score_o = np.einsum("nhk,nhk->nh", q_own, k[row[:, o]]) + bias[:, o]
            score[..., o] = np.where(row[:, o, None] < 0, -np.inf, score_o)
        score[..., W] = w.get("attention.sink", -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        mean = sum(weight[..., o, None] * v[row[:, o]] for o in range(W))
        y = mean.reshape(-1, D) @ w["attention.output"].reshape(D, D) + (x[own] if onto is None else onto[at])
        hidden = norm(y, w, "feedforward_norm", cfg["norm_epsilon"]) @ w["feedforward.expand.weight"]
        hidden = np.maximum(hidden + w["feedforward.expand.bias"], 0.0)
        z[at] = hidden @ w["feedforward.contract.weight"] + w["feedforward.contract.bias"]
        z[at] += y if onto is None else 0.0
    return z


def distinct(numbers):
    """The distinct ones among integers, in order. np.unique hashes them, and takes forty times as long."""
    numbers = np.sort(numbers, axis=None)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def layers(codes, weights, cfg, contexts):
    """(tokens, [(seen, weights) of each layer]): `seen` are the rows of the states below that each string reads.

    The first layer's states are those of the tokens; a row of -1 is before the beginning. codes: distinct, in order.
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


def logits(codes, weights, cfg, contexts):
    """Return the logits after each of these strings, which are distinct and in order: (strings, vocabulary)."""
    tokens, above = layers(codes, weights, cfg, contexts)
    x = weights["embedding.table"][tokens]
    for seen, own in above:
        x = block(x, seen, own, cfg)
    return read_out(x, weights, cfg)


def read_out(x, weights, cfg):
    """Return the logits of the last states."""
    x = norm(x, weights, "final_norm", cfg["norm_epsilon"])
    return x @ weights["head.output.weight"] + weights["head.output.bias"]
