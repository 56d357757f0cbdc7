"""Show the tokens of a text in a terminal: neighbours have different colours, or a bar between them."""

import os
import sys
import unicodedata
from collections.abc import Sequence
from itertools import cycle
from typing import Any

COLOURS = ("48;5;153", "48;5;222", "48;5;157", "48;5;218", "48;5;189")  # light backgrounds of black letters
SPECIAL = "48;5;16;38;5;231"  # white on black, for special tokens
_OFF = "\x1b[0m"


def in_colour() -> bool:
    """Return whether standard output is a terminal that shows colours, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cut(tokens: Sequence[int], tokenizer: Any, colour: bool) -> str:
    r"""Return the text of tokens with its cuts. Line ends stay; a part of a character is escaped, such as \xe2.

    Args:
        tokens: Ids of tokens.
        tokenizer: Tokenizer of `apformer.tokenizers`.
        colour: Whether to colour the background of each token, white on black if it is special. Otherwise tokens are
            separated by |.
    """
    pieces = [escape(tokenizer.bytes_of(token)) for token in tokens]
    if not colour:
        return "|".join(pieces)
    special = tokenizer.special_tokens
    return "".join(
        _paint(piece, SPECIAL if token in special else f"38;5;16;{light}")
        for token, piece, light in zip(tokens, pieces, cycle(COLOURS))
    )


def escape(piece: bytes) -> str:
    """Return bytes as text, with escapes for invalid UTF-8 and for control characters other than line ends and tabs."""
    text = piece.decode("utf-8", "backslashreplace")
    controls = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf")} - {*"\n\t\u200d"}
    return "".join(letter.encode("unicode_escape").decode() if letter in controls else letter for letter in text)


def _paint(piece: str, style: str) -> str:
    """Return a piece in its colour. A line end is shown as ↵; the colour ends before it, or it would fill the line."""
    *lines, last = piece.split("\n")
    ends = "".join(f"\x1b[{style}m{line}↵{_OFF}\n" for line in lines)
    return ends + (f"\x1b[{style}m{last}{_OFF}" if last or not lines else "")
