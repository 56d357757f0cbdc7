"""Tools of the lists of contexts: rules, every combination of some choices, and columns of tokens as strings."""

from collections.abc import Sequence

import numpy as np

RULES = {  # (a, b, c) of z = a x + b y + c
    "progression": (2, -1, 0),
    "fibonacci": (1, 1, 0),
    "doubling": (2, 0, 0),
    "alternating": (0, 1, 1),  # two progressions by turns; "0,1,7" has steps of 7
}


def grid(*choices: Sequence[int]) -> list[np.ndarray]:
    """Return every combination of the choices, an array for each."""
    return [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]


def code(columns: Sequence[np.ndarray], base: int) -> np.ndarray:
    """Return strings as numbers to a base, the first token the lowest digit."""
    return sum(token.astype(np.int64) * base**place for place, token in enumerate(columns))


def strings(columns: np.ndarray, data: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth), (contexts, 1) each: a code is a string as a number, its first token the lowest digit.

    The last row of the columns is what has to follow.
    """
    return code(columns[:-1], cfg["vocab_size"] + 1)[:, None], columns[-1][:, None]


def bias(cfg: dict) -> str:
    """Return the name of the weights that are added to scores, of a head and each place that it reads."""
    return f"attention.{cfg['pattern']}.bias"


def tokens_of(codes: np.ndarray, base: int, count: int) -> np.ndarray:
    """Return the tokens of strings: (strings, count)."""
    return np.stack([codes // base**place % base for place in range(count)], axis=1)


def shown(column: list, names: Sequence[str], characters: str) -> tuple[str, str]:
    """Return (what is given, what has to follow) of a context; the token after the last stands for nothing."""
    *read, right = ("before the row" if token == len(characters) else characters[token] for token in column)
    return ", ".join(f"{token!r} {name}" for token, name in zip(read, names, strict=True)), right
