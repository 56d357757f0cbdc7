"""Encode digits and spaces: the digits 0-9 are tokens 0-9, the space is token 10.

The vocabulary is vocabulary.json. `encode` and `decode` are exact inverses, each a look-up in a table.
"""

import json
from collections.abc import Sequence
from importlib import resources

import jax
import numpy as np

from apformer.errors import DATA, UserError

Tokens = np.ndarray | jax.Array | Sequence[int]
VOCABULARY: dict[str, int] = json.loads(
    resources.files("apformer.tokenizers").joinpath("vocabulary.json").read_text("utf-8")
)
CHARACTERS = "".join(VOCABULARY)  # in the order of their tokens


def encode(text: str) -> np.ndarray:
    """Return tokens_T, int32, one for each character of a text.

    Raises UserError (exit DATA) that names the first character outside the vocabulary.
    """
    tokens_T = np.array([VOCABULARY.get(character, -1) for character in text], np.int32)
    refuse_unknown(text, tokens_T < 0, "use the digits 0-9 and the space")
    return tokens_T


def decode(tokens_T: Tokens) -> str:
    """Return the text of a row of tokens, one character for each.

    Raises UserError (exit DATA) that names the first id outside the vocabulary.
    """
    return "".join(CHARACTERS[token] for token in require_known(tokens_T, len(VOCABULARY)))


def codes(text: str) -> np.ndarray:
    """Return the code points of a text, uint32; an undecodable byte of the command line is a lone surrogate."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def refuse_unknown(text: str, unknown_T: np.ndarray, remedy: str) -> None:
    """Raise UserError (exit DATA) that names the first unknown character, if there is one."""
    if unknown_T.any():
        position = int(np.argmax(unknown_T))
        fault = f"character {position + 1} is {ascii(text[position])}, which the vocabulary lacks"
        raise UserError(f"{fault}; {remedy}", DATA)


def require_known(tokens_T: Tokens, vocab_size: int) -> np.ndarray:
    """Return the tokens as an array. Raises UserError (exit DATA) that names the first id outside the vocabulary."""
    tokens_T = np.asarray(tokens_T)
    if not tokens_T.size:
        return np.zeros(0, np.int32)
    unknown_T = (tokens_T < 0) | (tokens_T >= vocab_size)
    if unknown_T.any():
        position = int(np.argmax(unknown_T))
        fault = f"token {position + 1} is {tokens_T[position]}, which the vocabulary lacks"
        raise UserError(f"{fault}; ids run from 0 to {vocab_size - 1}", DATA)
    return tokens_T
