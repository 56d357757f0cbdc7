"""Tools of the lists of contexts: every combination of some choices, and columns of tokens as strings."""

import numpy as np


def grid(*choices):
    """Return every combination of the choices, an array for each."""
    return [axis.ravel() for axis in np.meshgrid(*choices, indexing="ij")]


def code(columns, base):
    """Return strings as numbers to a base, the first token the lowest digit."""
    return sum(token.astype(np.int64) * base**place for place, token in enumerate(columns))


def coded(columns, base):
    """Return (codes, truth), (contexts, 1) each, of contexts whose last row is what has to follow."""
    return code(columns[:-1], base)[:, None], columns[-1][:, None]


def tokens_of(codes, base, count):
    """Return the tokens of strings: (strings, count)."""
    return np.stack([codes // base**place % base for place in range(count)], axis=1)


def shown(column, names, characters):
    """Return (what is given, what has to follow) of a context; the token after the last stands for nothing."""
    *read, right = ("before the row" if token == len(characters) else characters[token] for token in column)
    return ", ".join(f"{token!r} {name}" for token, name in zip(read, names, strict=True)), right
