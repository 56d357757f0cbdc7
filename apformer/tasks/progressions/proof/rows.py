"""Rows of progressions that contain every context of a model. Only numpy is needed.

If windows bound attention, a prediction depends on the last few terms (contexts.py). Otherwise it depends on all terms
before: such a model is checked on every progression of the generator (full_rows.py), and the claim covers no others.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

FILES = (Path(__file__),)  # what a module of contexts needs beside it
SPACE, START = 10, 11  # tokens 0 to 9 are digits; START stands for tokens before or after a row
SLICE = 2**17  # contexts of a slice, about: memory grows with it
UNSPLIT_BELOW = 10  # a difference d has |d| lines; with fewer than this, all are for training


def claim(data: dict, cfg: dict) -> str:
    """Return the claim that is proven if every context is continued correctly."""
    extent = "any length" if reach(cfg) is not None else f"up to {most_terms(data, cfg)} terms"
    differences = f"a difference from {data['min_difference']} to {data['max_difference']}"
    progression = f"every progression of {data['digits']}-digit terms with {differences}, of {extent}"
    return f"{progression}, once its first two terms are given"


def reach(cfg: dict) -> int | None:
    """Return the number of tokens before the newest that a prediction depends on; None if unbounded or absolute."""
    decoder = cfg.get("architecture", "model") == "model"  # fields of another may have the same names
    by_offsets = decoder and cfg.get("window") and cfg.get("position") in ("relative", "alibi", "none")
    return cfg["n_layers"] * (cfg["window"] - 1) if by_offsets else None


def most_terms(data: dict, cfg: dict) -> int:
    """Return the terms of the longest rows to check: R + 1, or those of the longest progression."""
    D, back = data["digits"], reach(cfg)
    if back is not None:
        return max(2, 1 - (D - 1 - back) // (D + 1)) + 1
    least = min(max(0, data["min_difference"]), data["max_difference"])
    return min(data["max_terms"], int(fitting(0, np.array(abs(least)), D)))


def count(data: dict, cfg: dict) -> int:
    """Return the number of contexts: (10^D - (n - 1) |d|) rows of difference d have n terms or more."""
    size = np.abs(np.arange(data["min_difference"], data["max_difference"] + 1))
    return sum(int(np.maximum(0, 10 ** data["digits"] - n * size).sum()) for n in range(2, most_terms(data, cfg)))


def slices(data: dict, cfg: dict, weights: dict | None = None) -> Iterator[np.ndarray]:
    """Yield all rows, about SLICE contexts at a time: arrays (3, N) of first terms, differences and numbers of terms.

    A slice has rows of similar length. Longer rows are cut to `most_terms`. The shortest rows come first, then
    the longest: a model learns these last, so a proof that fails ends sooner.
    """
    top, most, ends = 10 ** data["digits"] - 1, most_terms(data, cfg), [2]
    while ends[-1] < most:  # rows of 3 and 4 terms, 5 and 6, then up to 8, 12, 16, 24, 32 ...
        ends.append(most if most <= 4 else min(most, ends[-1] + 2 ** max(1, ends[-1].bit_length() - 2)))
    lengths = [*pairwise(ends)]
    for least, end in lengths[:1] + lengths[:0:-1]:
        parts, size = [], 0
        for difference in range(data["min_difference"], data["max_difference"] + 1):
            span = least * difference  # last term - first term of a row with least + 1 terms
            first = np.arange(max(0, -span), top + 1 - max(0, span))
            columns = first, np.full_like(first, difference)
            terms = np.minimum(most, fitting(*columns, data["digits"]))
            parts.append(np.stack([*columns, terms])[:, terms <= end])
            size += int((parts[-1][2] - 2).sum())
            if size >= SLICE:
                yield np.concatenate(parts, axis=1)
                parts, size = [], 0
        if size:
            yield np.concatenate(parts, axis=1)


def fitting(first: Any, difference: Any, digits: int) -> Any:
    """Return the number of terms from `first` on that stay within 0 .. 10^digits - 1; 10^9 for a difference of 0.

    `difference` is a numpy or JAX integer array, `first` too, of one shape with it, or a number.
    """
    xp, top = difference.__array_namespace__(), 10**digits - 1
    room = xp.where(difference < 0, first, top - first)
    return xp.where(difference == 0, 10**9, 1 + room // xp.maximum(abs(difference), 1))


def encode(columns: Any, digits: int, most: int) -> tuple[Any, Any]:
    """Return the tokens of the first `most` terms of rows, and the mask of those before the end of a row, (N, T) each.

    columns: first terms, differences and numbers of terms, numpy or JAX integers (N,).
    """
    first, difference, terms = columns
    xp = first.__array_namespace__()
    # Beyond the end of a row the last term repeats, since larger ones could overflow at 9 digits.
    number = xp.minimum(xp.arange(most, dtype=terms.dtype)[None], terms[:, None] - 1)
    value = first[:, None] + number * difference[:, None]
    place = xp.asarray(10 ** np.arange(digits)[::-1], dtype=value.dtype)
    space = xp.full_like(value, SPACE)[:, :, None]
    tokens = xp.concat([value[:, :, None] // place[None, None] % 10, space], axis=2).reshape(len(first), -1)[:, :-1]
    inside = xp.arange(tokens.shape[1], dtype=terms.dtype)[None] < ((digits + 1) * xp.minimum(terms, most) - 1)[:, None]
    return tokens, inside


def whole_rows(columns: np.ndarray, data: dict) -> np.ndarray:
    """Return the tokens of rows, with START beyond their ends: (N, T)."""
    tokens, inside = encode(columns, data["digits"], int(columns[2].max()))
    return np.where(inside, tokens, START).astype(np.int8)


def text(column: list, place: int, data: dict) -> tuple[str, str]:
    """Return (text before, right character) of a character to predict, by its place after the second term."""
    row = " ".join(f"{column[0] + n * column[1]:0{data['digits']}d}" for n in range(column[2]))
    end = 2 * data["digits"] + 1 + place
    return row[:end], row[end]


def named(context: dict, data: dict) -> dict:
    """Return the row of a context of a tally, the number of its given terms, and the margin, for missed.jsonl."""
    first, difference, _ = context["column"]
    terms = 2 + context["place"] // (data["digits"] + 1)
    return {"first": first, "difference": difference, "given": terms, "margin": context["margin"]}


def parts(columns: np.ndarray, data: dict) -> dict[str, np.ndarray]:
    """Return the masks of rows on training lines and of all others: {name: bool (rows,)}."""
    trained = split_of(columns[1], columns[0]) == 0
    return {"trained lines": trained, "untrained lines": ~trained}


def split_of(difference: Any, first: Any) -> Any:
    """Return the split of the line through each (difference, first): 0 train, 1 validation, 2 test, about 80 : 10 : 10.

    Both are numpy or JAX integer arrays of as many axes (not scalars), first is not negative; returns int32.
    """
    xp = difference.__array_namespace__()
    size = abs(difference)
    line = first % xp.maximum(size, 1)
    hashed = _mix(_mix(size.astype(np.uint32)) + line.astype(np.uint32)) % 10
    held_out = xp.where(hashed == 8, 1, xp.where(hashed == 9, 2, 0))
    return xp.where(size < UNSPLIT_BELOW, 0, held_out).astype(np.int32)


def _mix(bits: np.ndarray) -> np.ndarray:
    """Return the MurmurHash3 finalizer of uint32 numbers (Appleby, 2008): each bit flips about half of all bits."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
