"""Every context of the progressions, and the strings of tokens that a prediction depends on, listed in numpy alone.

Terms have D digits, and their differences lie in a range. A layer with a window of W tokens reads a token and the W - 1
before it, so L layers read r = L (W - 1) tokens back, wherever they stand. R terms hold all that is read when the
first character after the k-th term is asked for, the space:

    R = 1 + ceil((r - (D - 1)) / (D + 1))

So what a model predicts after k terms depends on the last min(k, R) of them: these contexts are finitely many, and rows
of R + 1 terms hold them all. A term that is rightly continued is part of the next context: without an error among them,
progressions of any length are continued rightly. Near the beginning of a row, START stands for each missing token.
"""

from pathlib import Path

import numpy as np

from apformer.tasks.progressions.proof import rows
from apformer.tasks.progressions.proof.rows import (  # noqa: F401, for a Case
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

FILES = (Path(rows.__file__),)


def depends(data: dict, cfg: dict) -> str:
    """Return on what a prediction depends, in words."""
    return f"a prediction depends on the last {most_terms(data, cfg) - 1} terms ({reach(cfg)} tokens back)"


def fault(data: dict, cfg: dict) -> str | None:
    """Return why apformer.proof does not compute a model after these strings, in words; None if it does."""
    if cfg.get("position") != "relative" or not cfg["window"]:
        given = f"position is {cfg.get('position')}, window {cfg.get('window')}"
        return f"{given}: relative with a window alone is computed"
    if cfg["vocab_size"] != START:
        return f"vocab_size is {cfg['vocab_size']}, and {START} alone is computed"
    if (reach(cfg) or 0) >= 16:
        return "a prediction depends on more than 16 tokens"
    return None


def bias(cfg: dict) -> str:
    """Return the name of the weights that are added to scores, of a head and each place that it reads."""
    return "attention.relative.table"


def reads(cfg: dict, layer: int) -> np.ndarray:
    """Return the places in a string of what a layer, counted from 1, reads: (keys, tokens of their own strings)."""
    below = (layer - 1) * (cfg["window"] - 1) + 1
    return np.arange(cfg["window"])[:, None] + np.arange(below)


def strings(columns: np.ndarray, data: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth), (rows, contexts, D + 1) each: what every asked character depends on, and the character.

    A code is a string as a number to the base 12, of which the newest token is the lowest digit. The truth is
    START where a row has ended.
    """
    tokens, back, D = whole_rows(columns, data), reach(cfg) or 0, data["digits"]
    before = np.full((len(tokens), back + 1), START, np.int8)
    tokens, asked = np.concatenate([before, tokens], axis=1), tokens[:, 2 * D + 1 :]
    codes = np.zeros(asked.shape, np.int64)
    for place in range(back, -1, -1):
        codes = codes * 12 + tokens[:, 2 * D + 1 + back - place :][:, : asked.shape[1]]
    return codes.reshape(len(codes), -1, D + 1), asked.reshape(len(codes), -1, D + 1)
