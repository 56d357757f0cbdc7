"""The text of a row: its rule, its largest digit, and terms, least significant digit first.

    =9 700 010 310      an arithmetic progression in base 10, z = 2x - y: 7, 10, 13
    +1 1010 1100        Fibonacci in base 2, z = x + y: 5, 3
    *f 3a 46            doubling in base 16, z = 2x: whatever stands before 64 hexadecimal

A token is a character. The sixteen digits come first, each its own value, then the space and the rules.
"""

import numpy as np

from apformer.errors import DATA, UserError
from apformer.tokenizers.digits import codes, inside

RULES = {"progression": "=", "fibonacci": "+", "doubling": "*"}
DIGITS = "0123456789abcdef"
CHARACTERS = DIGITS + " " + "".join(RULES.values())
SPACE = CHARACTERS.index(" ")
HEADING = 2  # characters before the first space

_CODES = codes(CHARACTERS)


def encode(text):
    """Tokens of a text, int32. Raises UserError (exit DATA) that names the first character outside the vocabulary."""
    is_BV = codes(text)[:, None] == _CODES[None]
    known = is_BV.any(1)
    if not known.all():
        position = int(np.argmin(known))
        fault = f"character {position + 1} is {ascii(text[position])}, which the vocabulary lacks"
        raise UserError(f"{fault}; use {CHARACTERS!r}", DATA)
    return is_BV.argmax(1).astype(np.int32)


def decode(tokens_T):
    """Text of tokens. Raises UserError (exit DATA) that names the first id outside the vocabulary."""
    return _CODES[inside(tokens_T, len(CHARACTERS))].tobytes().decode("utf-32-le")


def heading(rule, base):
    """The characters that name a rule and a base."""
    return RULES[rule] + DIGITS[base - 1]


def rule_token(rule):
    """The token of a rule by its name."""
    return CHARACTERS.index(RULES[rule])
