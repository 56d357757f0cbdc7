"""A text cut into its tokens, for a terminal: neighbours have different colours, or a bar between them."""

import os
import sys
import unicodedata
from itertools import cycle

COLOURS = ("48;5;153", "48;5;222", "48;5;157", "48;5;218", "48;5;189")  # light, under black letters
SPECIAL = "48;5;16;38;5;231"  # white on black
_OFF = "\x1b[0m"


def in_colour(stream=None) -> bool:
    """Whether a stream, standard output if not given, shows colours: a terminal, unless NO_COLOR is set."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cut(tokens, tokenizer, colour: bool) -> str:
    """The text of tokens. Line ends stay line ends; a part of a character is shown by its bytes, as \\xe2.

    colour: give each token a background of its own, white on black if it is special. Otherwise a | stands between two.
    """
    pieces = [shown(tokenizer.bytes_of(int(token))) for token in tokens]
    if not colour:
        return "|".join(pieces)
    special = tokenizer.special_tokens
    styles = (SPECIAL if int(token) in special else f"38;5;16;{each}" for token, each in zip(tokens, cycle(COLOURS)))
    return "".join(_painted(piece, style) for piece, style in zip(pieces, styles, strict=True))


def shown(piece: bytes) -> str:
    """Bytes as text: those that are no UTF-8, and what would steer a terminal, as \\x1b; line ends and tabs stay."""
    text = piece.decode("utf-8", "backslashreplace")
    return "".join(_escaped(letter) if unicodedata.category(letter) in ("Cc", "Cf") else letter for letter in text)


def _escaped(letter):
    return letter if letter in "\n\t\u200d" else letter.encode("unicode_escape").decode()


def _painted(piece, style):
    """A piece in its colour. A line end is drawn as ↵, and ends the colour, which would fill the rest of the line."""
    lines = piece.split("\n")
    ends = [f"\x1b[{style}m{line}↵{_OFF}\n" for line in lines[:-1]]
    return "".join(ends) + (f"\x1b[{style}m{lines[-1]}{_OFF}" if lines[-1] or not ends else "")
