"""Progressions as a text file: one on each line, `007 010 013 016 019`, with terms of one width.

`generator.render` defines the format, and reading inverts it: a line is a progression if its first term, its first
difference and its number of terms render to the same line.
"""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np

from apformer.errors import DATA, UserError
from apformer.tasks.progressions.generator import Progressions, render
from apformer.tasks.text import corpus

MOST = 9  # digits of a term


def read(path: str | Path) -> tuple[Progressions, int]:
    """Return the progressions of a text file, as int32 numpy arrays, and the digits of its terms.

    Raises:
        UserError: Exit code DATA, with the file, the line and the remedy.
    """
    rows, digits = read_numbers(lines_of(path), str(path))
    return Progressions(*np.array(rows, np.int32).T), digits


def lines_of(path: str | Path) -> list[str]:
    """Return the lines of a text file, at least one.

    A UTF-8 byte-order mark, Windows line ends, blank lines at the end and a missing last line end are accepted.

    Raises:
        UserError: Exit code DATA, with the file and the remedy.
    """
    text = corpus.read_file(path).replace("\r\n", "\n").rstrip("\n")
    if not text:
        raise UserError(f"{path} is empty: give a progression a line", DATA)
    return text.split("\n")


def read_numbers(lines: list[str], name: str) -> tuple[list[tuple[int, int, int]], int]:
    """Return (first, difference, terms) of each line, and the digits of a term, those of the first.

    Raises:
        UserError: Exit code DATA, with `name`, the line and the remedy.
    """
    digits = len(lines[0].split(" ")[0])
    return [read_line(line, f"{name}, line {n}", digits) for n, line in enumerate(lines, 1)], digits


def read_line(line: str, name: str, digits: int) -> tuple[int, int, int]:
    """Return (first, difference, terms) of a line of terms with `digits` digits; `name` is its name in messages."""
    if 1 <= digits <= MOST and re.fullmatch(rf"[0-9]{{{digits}}}(?: [0-9]{{{digits}}})+", line):
        first, second = int(line[:digits]), int(line[digits + 1 : 2 * digits + 1])
        row = first, second - first, (len(line) + 1) // (digits + 1)
        if render(*row, digits) == line:
            return row
    raise UserError(f"{name}: {_fault(line, digits)}", DATA)


def to_text(progressions: Progressions, digits: int) -> str:
    """Return progressions as text, one on each line, as `read` reads them."""
    rows = zip(*(np.asarray(a).tolist() for a in progressions), strict=True)
    return "".join(f"{render(first, difference, terms, digits)}\n" for first, difference, terms in rows)


def _fault(line: str, digits: int) -> str:
    """Return the reason why a line is no progression, and the remedy."""
    if not line:
        return "is empty; remove it"
    for position, character in enumerate(line, 1):
        if character not in "0123456789 ":
            return f"character {position} is {ascii(character)}; use the digits 0-9 and single spaces alone"
    terms = line.split(" ")
    if "" in terms:
        return "has an extra space; put one space between terms and none around them"
    if digits > MOST:
        return f"terms have {digits} digits; use at most {MOST}"
    for number, term in enumerate(terms, 1):
        if len(term) != digits:
            width = f"width {len(term)} where the first term has {digits}"
            return f"term {number}, {term[:50]}, has {width}; pad with zeros"
    if len(terms) < 2:
        return "has one term; give at least two, which fix the difference"
    steps = [int(after) - int(before) for before, after in pairwise(terms)]
    k, step = next((k, step) for k, step in enumerate(steps, 1) if step != steps[0])
    return (
        f"is not a progression: terms {k} and {k + 1} differ by {step} where terms 1 and 2 differ by {steps[0]}; "
        "correct or remove it"
    )
