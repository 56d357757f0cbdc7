"""A text cut into its tokens, for a terminal: neighbours have different colours, or a bar between them."""

import os
import sys
import unicodedata
from collections.abc import Iterable
from itertools import cycle
from typing import Any

COLOURS = ("48;5;153", "48;5;222", "48;5;157", "48;5;218", "48;5;189")  # light, under black letters
SPECIAL = "48;5;16;38;5;231"  # white on black
_OFF = "\x1b[0m"


def in_colour() -> bool:
    """Return whether standard output is a terminal that shows colours, and NO_COLOR not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cut(tokens: Iterable[int], tokenizer: Any, colour: bool) -> str:
    r"""Return the text of tokens. Line ends stay line ends; a part of a character is shown by its bytes, as \xe2.

    Args:
        tokens: Ids of tokens.
        tokenizer: Tokenizer of `apformer.tokenizers`.
        colour: Whether to give each token a background of its own, white on black if it is special. Otherwise a |
            stands between two.
    """
    pieces = [shown(tokenizer.bytes_of(int(token))) for token in tokens]
    if not colour:
        return "|".join(pieces)
    special = tokenizer.special_tokens
    styles = (SPECIAL if int(token) in special else f"38;5;16;{each}" for token, each in zip(tokens, cycle(COLOURS)))
    return "".join(_painted(piece, style) for piece, style in zip(pieces, styles, strict=True))


def shown(piece: bytes) -> str:
    """Return bytes as text, with escapes for what is no UTF-8 and what would steer a terminal, but line ends, tabs."""
    text = piece.decode("utf-8", "backslashreplace")
    steers = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf")} - {*"\n\t\u200d"}
    return "".join(letter.encode("unicode_escape").decode() if letter in steers else letter for letter in text)


def _painted(piece: str, style: str) -> str:
    """Return a piece in its colour. A line end is drawn as ↵, and ends the colour, which would fill the line."""
    lines = piece.split("\n")
    ends = [f"\x1b[{style}m{line}↵{_OFF}\n" for line in lines[:-1]]
    return "".join(ends) + (f"\x1b[{style}m{lines[-1]}{_OFF}" if lines[-1] or not ends else "")
