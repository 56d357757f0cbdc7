"""Tools to list contexts: rules, combinations of choices, and codes of strings of tokens."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

FILES = (Path(__file__),)  # what a module of contexts needs beside it
RULES = {  # (a, b, c) of z = a x + b y + c
    "progression": (2, -1, 0),
    "fibonacci": (1, 1, 0),
    "doubling": (2, 0, 0),
    "alternating": (0, 1, 1),  # two alternating progressions; "0,1,7" has steps of 7
}


def grid(*choices: Sequence[int]) -> list[np.ndarray]:
    """Return all combinations of the choices: one array for each choice."""
    return [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]


def code(columns: Sequence[np.ndarray], base: int) -> np.ndarray:
    """Encode strings as numbers to a base, with the first token as the lowest digit."""
    return sum(token.astype(np.int64) * base**place for place, token in enumerate(columns))


def strings(columns: np.ndarray, data: dict, cfg: dict) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, truth) of contexts, (contexts, 1, 1) each, see `code`.

    The last row of the columns is the truth: the tokens that have to follow.
    """
    return code(columns[:-1], cfg["vocab_size"] + 1)[:, None, None], columns[-1][:, None, None]


def bias(cfg: dict) -> str:
    """Return the name of the weights that are added to the scores of a head, one for each key that it reads."""
    return f"attention.{cfg['pattern']}.bias"


def tokens_of(codes: np.ndarray, base: int, count: int) -> np.ndarray:
    """Decode codes: return the tokens of strings, (strings, count)."""
    return np.stack([codes // base**place % base for place in range(count)], axis=1)


def describe(column: list, names: Sequence[str], characters: str) -> tuple[str, str]:
    """Return (description of the tokens read, ^ for one before the row, right character) of a context."""
    *read, right = ("^" if token == len(characters) else characters[token] for token in column)
    return f"{', '.join(names)}: {''.join(read)}", right
