"""The network in numpy and float64, as its equations say, for the strings of tokens that a prediction depends on.

A string is a number, its newest token the lowest digit; the base is one more than the vocabulary has tokens, so 12 for
ten digits and the space. What a layer says of a token is a function of a
shorter string, which many strings have in common. So each layer is computed once for each distinct string: a table, in
which the next layer looks up what it reads.

With --position ahead a string has one more token, the bit of the head that looks ahead: 0 for -1, 1 for none, 2 for 1.
"""

import numpy as np

BATCH = 2**13  # strings of a product
FIXED = {  # what this file does not compute otherwise
    "attention_bias": False, "weighting": "softmax", "activation": "relu", "feedforward": True,
    "feedforward_norm": True, "norm_position": "pre", "norm_bias": True, "scale_embedding": False,
}  # fmt: skip
UNSURE = 0.25  # a key with a number that is nearer to 0 may decide or not, and say either
AHEAD = [[0], [1]], [[0, 1], [2, 3]], [[0, 1, 2, 3]]  # what its layers read, see `reads`
COLUMNS = [[0], [1], [2], [3], [4]], [[0, 1, 2, 3, 4], [5, 6, 7, 3, 4]]


def radix(cfg):
    """The base of strings: one more than there are tokens, the last for all that is before a row."""
    return cfg["vocab_size"] + 1


def beyond(cfg):
    """What this file does not compute of a Config, in words; None if it computes all."""
    ahead, columns = (cfg["position"] == name for name in ("ahead", "columns"))
    vocab_size = 20 if columns else 11
    if cfg["vocab_size"] != vocab_size:
        return f"vocab_size is {cfg['vocab_size']}, and {vocab_size} alone is computed"
    for name, value in (FIXED | {"residual": not ahead} | ({"attention_sink": False} if ahead else {})).items():
        if cfg[name] != value:
            return f"{name} is {cfg[name]}, and {value} alone is computed"
    if cfg["similarity"] not in ("dot", "scaled_dot", "none"):
        return f"similarity is {cfg['similarity']}: dot, scaled_dot and none alone are computed"
    if cfg["norm"] not in ("layer", "none"):
        return f"norm is {cfg['norm']}: layer and none alone are computed"
    scheme, window = cfg["position_options"], cfg["window"]
    if ahead and scheme["separator"] == 10 and cfg["n_layers"] == len(AHEAD) and not window:
        return None
    if columns and (scheme["separator"], scheme["heading"], cfg["n_layers"], window) == (16, 2, len(COLUMNS), None):
        return None
    fixed = cfg["position"] == "fixed_offsets" and cfg["n_layers"] == 1
    if fixed and len(scheme["seen_offsets"]) <= 16 and not window:
        return None
    near = cfg["position"] == "periodic" and (scheme["separator"], scheme["near"], scheme["span_heads"]) == (10, 1, 0)
    if not (near and window is None or cfg["position"] == "relative" and window):
        known = "relative with a window, periodic with near 1, fixed_offsets of one layer, ahead and columns"
        return f"position is {cfg['position']}: {known} alone are computed"
    L = cfg["n_layers"]
    if (L * (window - 1) + 1 if window else (L + 1) * (L + 2) // 2) > 16:  # an int64 holds no longer string
        return "a prediction depends on more than 16 tokens"


def reads(cfg, layer):
    """The places in a string of what a layer, counted from 1, reads: (tokens that a head reads, their own strings).

    With a window: the token o places back, and what the layers below read from there. Periodic: a term and its space
    have P tokens; a string has a token for each pair (a, b), b <= a, in order, that a P - b places back; a head reads
    (0, 0), (1, 1) and (1, 0). Ahead: a string has the tokens 0, P, 1 and P + 1 places back of the last token read.
    Columns: the tokens 0, P and P + 1 places back, two of the heading, and those P - 1, 2P - 1 and 2P places back.
    Fixed offsets, in one layer: a token for each offset.
    """
    if cfg["position"] == "columns":
        return np.array(COLUMNS[layer - 1])
    if cfg["position"] == "ahead":
        return np.array(AHEAD[layer - 1])
    if cfg["position"] == "fixed_offsets":
        return np.arange(len(cfg["position_options"]["seen_offsets"]))[:, None]
    if cfg["position"] == "relative":
        below = (layer - 1) * (cfg["window"] - 1) + 1
        return np.arange(cfg["window"])[:, None] + np.arange(below)
    pairs = np.array([(a, b) for a in range(layer) for b in range(a + 1)])
    a, b = np.moveaxis(np.array([[0, 0], [1, 1], [1, 0]])[:, None] + pairs, 2, 0)
    return a * (a + 1) // 2 + b


def shapes(cfg):
    """{name: shape} of all weights of a Config; a leading axis holds the layers."""
    L, D, H, V = (cfg[name] for name in ("n_layers", "d_model", "n_heads", "vocab_size"))
    K, F = D // H, cfg["d_ff"] or 4 * D
    norms = ("attention_norm", "feedforward_norm") if cfg["norm"] == "layer" else ()
    scored, biased, tied = cfg["similarity"] != "none", cfg["feedforward_bias"], cfg["tie_embeddings"]
    blocks = dict.fromkeys(("attention.query", "attention.key"), (D, H, K)) if scored else {}
    blocks |= {"attention.value": (D, H, K)} | ({"attention.output": (H, K, D)} if cfg["output_projection"] else {})
    blocks |= {"attention.sink": (H,)} if cfg["attention_sink"] else {}
    blocks |= {f"attention.{cfg['position']}.table": (H, len(reads(cfg, 1)))}
    blocks |= {"feedforward.expand.weight": (D, F), "feedforward.contract.weight": (F, D)}
    blocks |= {"feedforward.expand.bias": (F,), "feedforward.contract.bias": (D,)} if biased else {}
    blocks |= {f"{norm}.{part}": (D,) for norm in norms for part in ("scale", "bias")}
    found = {f"blocks.{name}": (L, *shape) for name, shape in blocks.items()}
    found |= {f"final_norm.{part}": (D,) for part in ("scale", "bias") if cfg["final_norm"]}
    found |= {"embedding.table": (V, D)} | ({} if tied else {"head.output.weight": (D, V)})
    return found | ({"head.bias" if tied else "head.output.bias": (V,)} if cfg["head_bias"] else {})


def whole(weights, cfg):
    """The weights, and for those that a smaller model does without such as change nothing.

    Without queries and keys all scores are 0; heads without a projection stand side by side; tied embeddings read out.
    """
    table, (L, F) = weights["embedding.table"], weights["blocks.feedforward.expand.weight"].shape[::2]
    D, H, V = table.shape[1], cfg["n_heads"], len(table)
    joined = np.tile(np.eye(D).reshape(H, D // H, D), (L, 1, 1, 1))
    none = dict.fromkeys(("blocks.attention.query", "blocks.attention.key"), np.zeros((L, D, H, D // H)))
    none |= {"blocks.feedforward.expand.bias": np.zeros((L, F)), "blocks.feedforward.contract.bias": np.zeros((L, D))}
    none |= {"head.output.weight": table.T, "head.output.bias": weights.get("head.bias", np.zeros(V))}
    return none | {"blocks.attention.output": joined} | weights


def norm(x, weights, name, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, or x where the model has no such norm."""
    if f"{name}.scale" not in weights:
        return x
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
    return x * weights[f"{name}.scale"] + weights[f"{name}.bias"]


def block(x, seen, w, cfg, bits=None):
    """The states after a layer, from the states x before it. seen[:, o] is the row of x of the o-th token read, or -1.

    score(o) = q . k_o [/ sqrt(K)] + table[o]       y = x + (weighted mean of v) W_o
    z = y + relu(norm(y) W_1 + b_1) W_2 + b_2

    x and y are not added in a model without residuals. bits: what the head that looks ahead reads, -1, 0 or 1.
    """
    bits = np.zeros(len(seen)) if bits is None else bits
    D, H, W = cfg["d_model"], cfg["n_heads"], seen.shape[1]
    K, normed = D // H, norm(x, w, "attention_norm", cfg["norm_epsilon"])
    bias, products = w[f"attention.{cfg['position']}.table"], ("query", "key", "value")
    q, k, v = ((normed @ w[f"attention.{name}"].reshape(D, D)).reshape(-1, H, K) for name in products)
    q, z = q / (K**0.5 if cfg["similarity"] == "scaled_dot" else 1.0), np.empty((len(seen), D))
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
        if cfg["position"] == "ahead":
            mean[:, -1], mean[:, -1, 0] = 0.0, bits[at]
        y = mean.reshape(-1, D) @ w["attention.output"].reshape(D, D) + (x[own] if cfg["residual"] else 0.0)
        hidden = norm(y, w, "feedforward_norm", cfg["norm_epsilon"]) @ w["feedforward.expand.weight"]
        hidden = np.maximum(hidden + w["feedforward.expand.bias"], 0.0)
        z[at] = hidden @ w["feedforward.contract.weight"] + w["feedforward.contract.bias"]
        z[at] += y if cfg["residual"] else 0.0
    return z


def distinct(numbers):
    """The distinct ones among integers, in order. np.unique hashes them, and takes forty times as long."""
    numbers = np.sort(numbers, axis=None)
    return numbers[np.diff(numbers, prepend=numbers[:1] - 1) != 0]


def layers(codes, weights, cfg):
    """(tokens, [(seen, weights) of each layer]): `seen` are the rows of the states below that each string reads.

    The first layer's states are those of the tokens; a row of -1 is before the beginning. codes: distinct, in order.
    """
    found, base = [], radix(cfg)
    for layer in range(cfg["n_layers"], 0, -1):
        places = reads(cfg, layer)
        part = np.stack([sum(codes // base**i % base * base**o for o, i in enumerate(place)) for place in places], 1)
        below = distinct(part)
        below = below[below % base != base - 1]
        seen = np.where(part % base == base - 1, -1, np.searchsorted(below, part))
        own = {name[7:]: array[layer - 1] for name, array in weights.items() if name.startswith("blocks.")}
        found, codes = [(seen, own), *found], below
    return codes, found


def logits(codes, weights, cfg):
    """The logits after each of these strings, which are distinct and in order: (strings, vocabulary)."""
    tokens, above = layers(codes, weights, cfg)
    x, bits = weights["embedding.table"][tokens], codes // 12**4 % 12 - 1.0
    for seen, own in above:
        x = block(x, seen, own, cfg, bits if seen is above[-1][0] else None)
    x = norm(x, weights, "final_norm", cfg["norm_epsilon"])
    return x @ weights["head.output.weight"] + weights["head.output.bias"]


def bits(codes, weights, cfg):
    """(Whether keys may go on, which of -1, 0 and 1 they may say instead): (N,) and (N, 3) bool, with --position ahead.

    The key of a string, in any order, is that of its last token in the last layer. It has two numbers, the first of its
    key and the first of its value. It decides if the first is above 0, and then says the sign of the second.
    """
    strings, place_of = np.unique(codes, return_inverse=True)
    tokens, (*below, (_, own)) = layers(strings, weights, cfg)
    x = weights["embedding.table"][tokens]
    for seen, w in below:
        x = block(x, seen, w, cfg)
    x = norm(x, own, "attention_norm", cfg["norm_epsilon"])[place_of]
    decides, says = (x @ own[f"attention.{name}"][:, -1, 0] for name in ("key", "value"))
    signs = np.stack([-says, np.full(len(says), -np.inf), says], 1)
    return ~(decides > UNSURE), ~(signs < -UNSURE) & ~(decides < -UNSURE)[:, None]  # what is not finite may be either
