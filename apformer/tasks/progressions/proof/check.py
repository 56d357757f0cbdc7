"""Proof that a model continues every arithmetic progression: `python check.py` in the folder that holds the model.

It needs Python and numpy, and no compiler, no JAX and nothing of apformer. It reads top to bottom:

1. read the weights, which must be those of the certificate
2. list every context that there is
3. compute the network in float64, as its equations say
4. demand the right character after every context

Terms have D digits, and their differences lie in a range. A layer with a window of W tokens reads a token and the W - 1
before it, so L layers read r = L (W - 1) tokens back. What is predicted after a token is a function of that token and
of the r before it, or of fewer near the beginning of a row. These strings are finitely many, and a term that is rightly
continued is the context of the next: without an error among them, progressions of any length are continued rightly.

What a layer says of a token is a function of a shorter string, which many contexts have in common. So each layer is
computed once for each distinct string: a table, in which the next layer looks up what it reads.

float64 rounds at 1e-16. The smallest margin has to be above SAFE times the largest logit, so that its sign is that of
exact arithmetic unless these few roundings grow ten thousand million times. Exit codes: 0 proven, 1 not proven, 2 a
file is at fault.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

SPACE, START = 10, 11  # tokens: ten digits and the space; START stands for all that is before a row
SAFE = 1e-6
MOST = 16  # tokens of a string, so that it fits an int64 as a number to the base 12
SLICE = 2**18  # contexts that are asked at once, about: memory grows with it
BATCH = 2**13  # strings of a product
FIXED = {  # what this file does not compute otherwise
    "vocab_size": 11, "position": "relative", "attention_bias": False, "output_projection": True,
    "weighting": "softmax", "attention_sink": True, "activation": "relu", "feedforward_bias": True,
    "feedforward_norm": True, "residual": True, "norm_position": "pre", "norm_bias": True, "head_bias": True,
    "scale_embedding": False, "tie_embeddings": False,
}  # fmt: skip


def demand(holds, fault):
    """End with exit code 2 and the fault, unless something holds."""
    if not holds:
        print(f"check.py: {fault}", file=sys.stderr)
        sys.exit(2)


# 1. The weights


def read(folder):
    """(weights, Config, data, certificate) of the files of a folder, which must belong together."""
    cfg, data = (json.loads((folder / "config.json").read_text())[part] for part in ("model", "data"))
    certificate = json.loads((folder / "certificate.json").read_text())
    demand(beyond(cfg) is None, beyond(cfg))
    weights, raw = read_safetensors(folder / "model.safetensors")
    shapes = {name: array.shape for name, array in weights.items()}
    demand(shapes == shapes_of(cfg), "model.safetensors has other names or shapes than config.json says")
    digest = hashlib.sha256(b"".join(raw[name] for name in sorted(raw, key=lambda name: name.split("."))))
    demand(digest.hexdigest() == certificate["parameters_sha256"], "the certificate is of other weights")
    demand((certificate["model"], certificate["data"]) == (cfg, data), "the certificate is of another config.json")
    return weights, cfg, data, certificate


def beyond(cfg):
    """What this file does not compute of a Config, in words; None if it computes all."""
    for name, value in FIXED.items():
        if cfg[name] != value:
            return f"{name} is {cfg[name]}, and {value} alone is computed"
    if cfg["similarity"] not in ("dot", "scaled_dot"):
        return f"similarity is {cfg['similarity']}, and dot and scaled_dot alone are computed"
    if cfg["window"] is None or cfg["n_layers"] * (cfg["window"] - 1) >= MOST:
        return f"a prediction depends on more than {MOST} tokens"


def read_safetensors(path):
    """{name: float64 array} and {name: its bytes} of a file (https://huggingface.co/docs/safetensors)."""
    file = path.read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header, arrays, raw, at = json.loads(file[8:begin]), {}, {}, 0
    header.pop("__metadata__", None)
    for name, facts in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, at_next = facts["data_offsets"]
        demand(facts["dtype"] == "F32" and first == at, f"{name} is not float32, or does not follow what is before it")
        raw[name], at = file[begin + first : begin + at_next], at_next
        arrays[name] = np.frombuffer(raw[name], "<f4").astype(np.float64).reshape(facts["shape"])
        demand(np.isfinite(arrays[name]).all(), f"{name} has numbers that are not finite")
    demand(begin + at == len(file), f"{path.name} ends too early or too late")
    return arrays, raw


def shapes_of(cfg):
    """{name: shape} of all weights of a Config; a leading axis holds the layers."""
    L, D, H, W, V = (cfg[name] for name in ("n_layers", "d_model", "n_heads", "window", "vocab_size"))
    K, F = D // H, cfg["d_ff"] or 4 * D
    norms = ("attention_norm", "feedforward_norm") if cfg["norm"] == "layer" else ()
    blocks = dict.fromkeys(("attention.query", "attention.key", "attention.value"), (D, H, K))
    blocks |= {"attention.output": (H, K, D), "attention.sink": (H,), "attention.relative.table": (H, W)}
    blocks |= {"feedforward.expand.weight": (D, F), "feedforward.expand.bias": (F,)}
    blocks |= {"feedforward.contract.weight": (F, D), "feedforward.contract.bias": (D,)}
    blocks |= {f"{norm}.{part}": (D,) for norm in norms for part in ("scale", "bias")}
    shapes = {f"blocks.{name}": (L, *shape) for name, shape in blocks.items()}
    shapes |= {f"final_norm.{part}": (D,) for part in ("scale", "bias") if cfg["final_norm"]}
    return shapes | {"embedding.table": (V, D), "head.output.weight": (D, V), "head.output.bias": (V,)}


# 2. The contexts


def contexts(digits, reach, difference):
    """(first term, how many terms are given) of every context of a difference, a column each.

    Rows with R or more given terms are alike, since the last R hold all that is read when the first character is asked.
    """
    top, R = 10**digits - 1, max(2, 1 - (digits - 1 - reach) // (digits + 1))
    for given in range(2, R + 1):
        last = given * difference  # the term asked for is the first one and this
        first = np.arange(max(0, -last), top - max(0, last) + 1)
        yield np.stack([first, np.full_like(first, difference), np.full_like(first, given)])


def strings(columns, digits, reach):
    """(codes, truth), (contexts, D + 1) each: what every asked character depends on, and the character.

    A code is a string as a number to the base 12, of which the newest token is the lowest digit.
    """
    first, difference, given = columns
    tokens = []
    for number in range(-(-(reach + 1) // (digits + 1)), -1, -1):  # of terms before the one that is asked for
        nth = given - number  # term of the row, from 0
        term = first + nth * difference
        tokens.append(np.where(nth > 0, SPACE, START))
        tokens += [np.where(nth >= 0, term // 10**place % 10, START) for place in reversed(range(digits))]
    asked = range(len(tokens) - digits - 1, len(tokens))
    codes = [sum(tokens[at - 1 - back] * 12**back for back in range(reach + 1)) for at in asked]
    return np.stack(codes, axis=1), np.stack([tokens[at] for at in asked], axis=1)


# 3. The network


def norm(x, weights, name, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, or x where the model has no such norm."""
    if f"{name}.scale" not in weights:
        return x
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
    return x * weights[f"{name}.scale"] + weights[f"{name}.bias"]


def block(x, read, w, cfg):
    """The states after a layer, from the states x before it. read[:, o] is the row of x of the token o back, or -1.

    score(o) = q . k_o [/ sqrt(K)] + table[o]       y = x + (weighted mean of v) W_o
    z = y + relu(norm(y) W_1 + b_1) W_2 + b_2
    """
    D, H, W = cfg["d_model"], cfg["n_heads"], cfg["window"]
    K, normed = D // H, norm(x, w, "attention_norm", cfg["norm_epsilon"])

    def heads(name):
        return (normed @ w[f"attention.{name}"].reshape(D, D)).reshape(-1, H, K)

    q, k, v = heads("query") / (K**0.5 if cfg["similarity"] == "scaled_dot" else 1.0), heads("key"), heads("value")
    z = np.empty((len(read), D))
    for at in (slice(first, first + BATCH) for first in range(0, len(read), BATCH)):
        seen, own = read[at], read[at, 0]
        score = np.full((len(own), H, W + 1), -np.inf)  # the last for the sink, a key whose value is 0
        for o in range(W):
            score_o = (q[own] * k[seen[:, o]]).sum(-1) + w["attention.relative.table"][:, o]
            score[..., o] = np.where(seen[:, o, None] < 0, -np.inf, score_o)
        score[..., W] = w["attention.sink"]
        weight = np.exp(score - score.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        mean = sum(weight[..., o, None] * v[seen[:, o]] for o in range(W)).reshape(-1, D)
        y = x[own] + mean @ w["attention.output"].reshape(D, D)
        hidden = norm(y, w, "feedforward_norm", cfg["norm_epsilon"]) @ w["feedforward.expand.weight"]
        hidden = np.maximum(hidden + w["feedforward.expand.bias"], 0.0)
        z[at] = y + hidden @ w["feedforward.contract.weight"] + w["feedforward.contract.bias"]
    return z


def logits(codes, weights, cfg):
    """The logits after each of these strings, which are distinct: (strings, 11)."""
    L, W = cfg["n_layers"], cfg["window"]
    wanted = [codes]  # of each layer, the last one first: the strings that the layer after it reads
    for layer in reversed(range(L)):
        parts = [wanted[-1] // 12**o % 12 ** (layer * (W - 1) + 1) for o in range(W)]
        parts = np.unique(np.concatenate(parts))
        wanted.append(parts[parts % 12 != START])
    known = wanted.pop()
    x = weights["embedding.table"][known]
    for layer in range(L):
        codes = wanted.pop()
        parts = np.stack([codes // 12**o % 12 ** (layer * (W - 1) + 1) for o in range(W)], axis=1)
        read = np.where(parts % 12 == START, -1, np.searchsorted(known, parts))
        of_layer = {name.removeprefix("blocks."): array[layer] for name, array in weights.items() if "blocks." in name}
        x, known = block(x, read, of_layer, cfg), codes
    x = norm(x, weights, "final_norm", cfg["norm_epsilon"])
    return x @ weights["head.output.weight"] + weights["head.output.bias"]


# 4. The proof


def slices(data, reach):
    """The contexts of all differences, about SLICE at a time."""
    held = []
    for difference in range(data["min_difference"], data["max_difference"] + 1):
        held += [columns for columns in contexts(data["digits"], reach, difference) if columns.size]
        if held and (sum(map(np.size, held)) >= 3 * SLICE or difference == data["max_difference"]):
            yield np.concatenate(held, axis=1)
            held = []


def margins(found, right):
    """The logit of the right character - the largest other one, for each row of logits; -inf if one is not finite."""
    logit = np.take_along_axis(found, right[:, None], 1)[:, 0]
    others = found.copy()
    np.put_along_axis(others, right[:, None], -np.inf, 1)
    return np.where(np.isfinite(found).all(1), logit - others.max(1), -np.inf)


def ask(columns, weights, cfg, data):
    """(margins of all distinct strings, the largest logit, the worst context as text) of some contexts."""
    codes, truth = strings(columns, data["digits"], cfg["n_layers"] * (cfg["window"] - 1))
    pairs = np.unique(codes * 12 + truth)  # a string with two truths is wrong in one of them
    distinct, place_of = np.unique(pairs // 12, return_inverse=True)
    found = logits(distinct, weights, cfg)
    margin = margins(found[place_of], pairs % 12)
    row, place = np.argwhere(codes * 12 + truth == pairs[margin.argmin()])[0]
    first, difference, given = (int(number) for number in columns[:, row])
    terms = [f"{first + n * difference:0{data['digits']}d}" for n in range(given + 1)]
    text = " ".join(terms)
    end = len(text) - data["digits"] - 1 + int(place)
    return margin, np.abs(found).max(), f"{text[:end]!r}, where {text[end]!r} has to follow"


def main(folder):
    """Print PROVEN, or what speaks against it."""
    try:
        weights, cfg, data, certificate = read(folder)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        demand(False, f"the files in {folder} cannot be read ({error!r}): export them again")
    asked, characters, errors, largest, least, worst = 0, 0, 0, 0.0, np.inf, ""
    for columns in slices(data, cfg["n_layers"] * (cfg["window"] - 1)):
        margin, logit, text = ask(columns, weights, cfg, data)
        asked, characters, errors = asked + columns.shape[1], characters + len(margin), errors + (margin <= 0).sum()
        largest, (least, worst) = max(largest, logit), min((least, worst), (float(margin.min()), text))
        share = asked / certificate["contexts"]
        print(f"\r{share:4.0%} of {certificate['contexts']:,} contexts", end="", file=sys.stderr, flush=True)
    print(f"\r{' ' * 50}\r", end="", file=sys.stderr)
    print(f"contexts {asked:,}, distinct strings {characters:,}, wrong {errors:,}, smallest margin {least:.6g}")
    demand(asked == certificate["contexts"], f"the certificate is of {certificate['contexts']:,} contexts")
    if least > SAFE * largest:
        low, high = data["min_difference"], data["max_difference"]
        claim = f"every progression of {data['digits']}-digit terms, differences {low} to {high}, of any length"
        print(f"PROVEN: in exact arithmetic these weights continue {claim}, rightly")
        return 0
    print(f"NOT PROVEN: the margin is {least:.3g} after {worst}")
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent))
