"""Characters to tokens and back: the digits 0-9 are tokens 0-9, the space is token 10.

The vocabulary is the JSON file beside this one. `encode` and `decode` are exact inverses, each one look-up in a table.
"""

import json
from importlib import resources

import numpy as np

from apformer.errors import DATA, UserError

VOCABULARY: dict[str, int] = json.loads(resources.files("apformer.data").joinpath("vocabulary.json").read_text("utf-8"))

_UNKNOWN = -1
_TOKEN_OF = np.full(129, _UNKNOWN, np.int32)  # by code point; the last entry stands for all beyond ASCII
_CODE_OF = np.zeros(len(VOCABULARY), np.uint32)
for _character, _token in VOCABULARY.items():
    _TOKEN_OF[ord(_character)] = _token
    _CODE_OF[_token] = ord(_character)


def encode(text: str) -> np.ndarray:
    """Tokens of a text, one for each character.

    Returns tokens_T, int32. Raises UserError (exit DATA) that names the first character outside the vocabulary.
    """
    # An undecodable byte of the command line arrives as a lone surrogate, which plain UTF-32 would refuse.
    codes_T = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    tokens_T = _TOKEN_OF[np.minimum(codes_T, 128)]
    if (tokens_T == _UNKNOWN).any():
        position = int(np.argmax(tokens_T == _UNKNOWN))
        raise UserError(
            f"character {position + 1} is {ascii(text[position])}, which the vocabulary lacks; use the digits 0-9 and "
            "the space",
            DATA,
        )
    return tokens_T


def decode(tokens_T) -> str:
    """Text of a row of tokens, one character for each.

    tokens_T is any one-dimensional integer array. Raises UserError (exit DATA) that names the first id outside the
    vocabulary.
    """
    tokens_T = np.asarray(tokens_T) if len(tokens_T) else np.zeros(0, np.int32)  # numpy takes [] for floats
    outside_T = (tokens_T < 0) | (tokens_T >= len(VOCABULARY))
    if outside_T.any():
        position = int(np.argmax(outside_T))
        raise UserError(
            f"token {position + 1} is {tokens_T[position]}, which the vocabulary lacks; ids run from 0 to "
            f"{len(VOCABULARY) - 1}",
            DATA,
        )
    return _CODE_OF[tokens_T].tobytes().decode("utf-32-le")
