"""List every context of progressions, and the strings of tokens that predictions depend on, for models with windows.

Terms have D digits, and their differences lie in a range. A layer with a window of W tokens reads a token and the W - 1
before it, so L layers read r = L (W - 1) tokens back, independent of position. The last R terms contain all tokens read
for the prediction after the k-th term (of the space):

    R = 1 + ceil((r - (D - 1)) / (D + 1))

So a prediction after k terms depends on the last min(k, R) terms alone. These contexts are finitely many, and rows of
R + 1 terms contain them all. A correct next term becomes part of the next context: if no context has an error,
progressions of any length are continued correctly. Near the start of a row, START stands for each missing token.

Only numpy is needed.
"""

import numpy as np

from apformer.tasks.progressions.proof.rows import (  # noqa: F401, for a Case
    FILES,
    START,
    claim,
    count,
    most_terms,
    named,
    parts,
    reach,
    slices,
    text,
    whole_rows,
)

COMPUTED = {"position": ("relative",), "vocab_size": (START,)}  # see network.unsupported


def depends(data: dict, cfg: dict) -> str:
    """Return a phrase that says which tokens a prediction depends on."""
    return f"a prediction depends on the last {most_terms(data, cfg) - 1} terms ({reach(cfg)} tokens back)"


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why apformer.proof does not compute this model on its strings; None if it does."""
    back = reach(cfg)
    if back is None:
        options = f"position is {cfg.get('position')}, window {cfg.get('window')}"
        return f"{options}: only relative with a window is computed"
    return "a prediction depends on more than 16 tokens" if back >= 16 else None


def bias(cfg: dict) -> str:
    """Return the name of the weights that are added to the scores of a head, one for each offset."""
    return "attention.relative.table"


def reads(cfg: dict, layer: int) -> np.ndarray:
    """Return the places in a string on which each key that a layer (from 1) reads depends: (keys, tokens of a key)."""
    below = (layer - 1) * (cfg["window"] - 1) + 1
    return np.arange(cfg["window"])[:, None] + np.arange(below)


def strings(columns: np.ndarray, data: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth) of every character to predict: its string and the right character, (rows, contexts, D + 1).

    A code is the string as a number to the base 12, with the newest token as the lowest digit. The truth is START
    beyond the end of a row.
    """
    tokens, back, D = whole_rows(columns, data), reach(cfg) or 0, data["digits"]
    padding = np.full((len(tokens), back + 1), START, np.int8)
    tokens, truth = np.concatenate([padding, tokens], axis=1), tokens[:, 2 * D + 1 :]
    codes = np.zeros(truth.shape, np.int64)
    for place in range(back, -1, -1):
        codes = codes * 12 + tokens[:, 2 * D + 1 + back - place :][:, : truth.shape[1]]
    shape = len(truth), -1, D + 1
    return codes.reshape(shape), truth.reshape(shape)
