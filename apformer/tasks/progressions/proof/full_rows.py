"""List every progression of the generator, for models whose predictions depend on all tokens before.

Such a model may use absolute positions, so each context is a row from its first term on. Progressions of one first term
and one difference are prefixes of the longest of them, so this row contains the contexts of all.

The network is computed in numpy and float64 for full rows, in any form of the plain block: with or without residuals,
the norm before the feed-forward layer and the final norm. Rounding is not bounded: over many layers the bounds of
bounds.py exceed any margin.
"""

import numpy as np

from apformer.proof import network
from apformer.tasks.progressions.proof.rows import (  # noqa: F401, for a Case
    FILES,
    START,
    claim,
    count,
    most_terms,
    named,
    parts,
    slices,
    text,
    whole_rows,
)

TOKENS = 2**10  # tokens computed at once, so that their states fit the cache of a CPU
QUERIES = 2**5  # queries whose scores are computed at once: keys after the last of them are left out
PLACES = 2**12  # more than the tokens of any row
SPAN = 2**20  # more than any term that a code holds
SHAPE = 10, SPAN, 2 * SPAN, PLACES  # limits of the numbers that a code holds
COMPUTED = {  # see network.unsupported
    "architecture": ("model",),
    "position": ("sinusoidal", "learned", "none"),
    "residual": (True, False),
    "feedforward_norm": (True, False),
    "window": (None,),
    "vocab_size": (START,),
}


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why no code holds the rows of a model; None if codes do."""
    if 10 ** data["digits"] > SPAN:
        return f"terms have {data['digits']} digits, and at most 6 are computed"
    longest = most_terms(data, cfg) * (data["digits"] + 1)
    return f"rows have up to {longest:,} characters" if longest > PLACES else None


def strings(columns: np.ndarray, data: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth) as in contexts.py. A code is the index of (D, first term, difference, place) in SHAPE.

    The place is that of the token before.
    """
    (first, difference, _), D = columns[:, :, None], data["digits"]
    truth = whole_rows(columns, data)[:, 2 * D + 1 :]
    places = 2 * D + np.arange(truth.shape[1])
    codes = np.ravel_multi_index((D, first, difference + SPAN, places), SHAPE, mode="wrap")  # see `fault`
    shape = len(truth), -1, D + 1
    return np.reshape(codes, shape), truth.reshape(shape)


def rows_of(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Decode codes.

    Returns:
        (columns and lengths of the distinct rows, short ones first; row index and place of each code; digits). The
        length of a row is the number of its tokens up to the last place of a code.
    """
    row, place = np.divmod(codes, PLACES)
    distinct, row_index = np.unique(row, return_inverse=True)
    digits, first, difference = np.unravel_index(distinct, SHAPE[:3])
    last = np.zeros(len(distinct), np.int64)
    np.maximum.at(last, row_index, place)
    D, by_length = int(digits[0]), np.argsort(last, kind="stable")
    columns = np.stack([first, difference - SPAN, (last + 1) // (D + 1) + 1])
    return columns[:, by_length], last[by_length] + 1, np.argsort(by_length)[row_index], place, D


def logits(codes: np.ndarray, weights: dict, cfg: dict, contexts: object) -> np.ndarray:
    """Return the logits after each code: (codes, vocabulary)."""
    columns, length, row_index, place, D = rows_of(codes)
    tokens = whole_rows(columns, {"digits": D})[:, : length.max()]
    tokens = np.where(tokens < cfg["vocab_size"], tokens, 0)

    def batch(part: slice) -> np.ndarray:
        given = tokens[part, : length[part].max()]
        padding = tokens.shape[1] - given.shape[1]
        return np.pad(logits_of_rows(given, weights, cfg), ((0, 0), (0, padding), (0, 0)))

    logits_NTV = network.map_batches(batch, len(tokens), max(1, TOKENS // tokens.shape[1]))
    return logits_NTV[row_index, place]


def logits_of_rows(tokens: np.ndarray, weights: dict, cfg: dict) -> np.ndarray:
    """Return the logits after every token of rows: (N, T) to (N, T, V).

    What a row has in common with the beginning of the row before is not computed again, which leaves M tokens.
    """
    new = np.logical_or.accumulate(np.diff(tokens, axis=0, prepend=-1) != 0, axis=1)
    source = np.maximum.accumulate(np.where(new, new.cumsum().reshape(new.shape) - 1, 0))  # (N, T) to one of M
    x = (weights["embedding.table"][tokens] + positions(tokens.shape[1], weights, cfg))[new]
    residual = cfg.get("residual", True)
    for layer in range(cfg["n_layers"]):
        w = network.of_layer(weights, layer)
        y = attended(x, source, w, cfg)[new]
        y = y @ w["attention.output"].reshape(y.shape[1], -1) if cfg["output_projection"] else y
        y = x + y if residual else y
        z = network.contract(network.hidden(y, w, cfg), w)
        x = y + z if residual else z
    return network.read_out(x, weights, cfg)[source]


def positions(length: int, weights: dict, cfg: dict) -> np.ndarray:
    """Return the position vectors of the first tokens of a row, to add to the embeddings: (length, D)."""
    D = cfg["d_model"]
    if cfg["position"] == "none":
        return np.zeros((length, D))
    if cfg["position"] == "learned":
        return weights["position.table"][:length]
    angles = np.arange(length)[:, None] * 10_000.0 ** (-np.arange(0, D, 2) / D)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)[:, :D]


def attended(x: np.ndarray, source: np.ndarray, w: dict, cfg: dict) -> np.ndarray:
    """Return causal attention over rows, before the output projection.

    Args:
        x: (M, D) states.
        source: (N, T) index of the state of each token.
        w: Weights of the layer.
        cfg: Config of the model.

    Returns:
        (N, T, D) weighted sums of the values of each head.
    """
    (N, T), D, H = source.shape, cfg["d_model"], cfg["n_heads"]
    normed, W = network.norm(x, w, "attention_norm", cfg["norm_epsilon"]), network.projections(w, cfg)
    q, k, v = ((normed @ W[name]).reshape(-1, H, D // H)[source].swapaxes(1, 2) for name in ("query", "key", "value"))
    weighted_sum = np.empty((N, T, H, D // H))
    for begin in range(0, T, QUERIES):
        end = min(begin + QUERIES, T)
        score = q[:, :, begin:end] @ k[:, :, :end].swapaxes(2, 3)
        score[..., begin:] += np.triu(np.full((end - begin, end - begin), -np.inf), 1)
        highest = score.max(-1, keepdims=True)
        score -= highest
        weight = np.exp(score, out=score)
        total = weight.sum(-1, keepdims=True)
        if "attention.sink" in w:
            total += np.exp(w["attention.sink"][:, None, None] - highest)
        weighted_sum[:, begin:end] = (weight @ v[:, :, :end] / total).swapaxes(1, 2)
    return weighted_sum.reshape(N, T, D)
