"""Vocabularies of `tiktoken`, such as GPT-4's cl100k_base: a line is a token in base64, a space and its rank.

    IQ== 0
    Ig== 1

The rank of a token is its id, and the place of its merge: of all neighbours that join to a token, those of the lowest
rank are merged first. A file does not list merges, but they follow from the ranks. The merges below rank r make two
tokens of the bytes of token r, and these are what merge r joins. Nor does a file say how a text is cut, and which
tokens are special. That is in the program, under the name of the vocabulary.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from apformer.errors import DATA, UserError
from apformer.tokenizers.chunks import GPT2_PATTERN, GPT4_PATTERN

LONGEST = 256  # bytes of a token; those of GPT-4 have up to 128
_FIRST = re.compile(r"[A-Za-z0-9+/]*=* 0\r?(\n|\Z)")
_MIDDLE = {"<|fim_prefix|>": 2, "<|fim_middle|>": 3, "<|fim_suffix|>": 4}
# By the name: the pattern; special tokens, whose ids are counted from the size; the size of the published file.
RULES = {
    "cl100k": (GPT4_PATTERN, {"<|endoftext|>": 1, **_MIDDLE, "<|endofprompt|>": 20}, 100_256),  # 100257, 100276
    "r50k": (GPT2_PATTERN, {"<|endoftext|>": 0}, 50_256),  # GPT-2's
}
_AGAIN = "fetch the file again"


class Vocabulary(NamedTuple):
    """Byte pairs by their ids."""

    tokens: list[bytes]
    merges: Sequence[tuple[int, int]]
    """The ids that are merged, the first merge first."""
    pattern: str
    special_tokens: Mapping[str, int]


def is_one(text: str) -> bool:
    """Return True if a text begins as such a file does."""
    return _FIRST.match(text) is not None


def parse(text: str, path: Path) -> Vocabulary:
    """Return the vocabulary of the text of a file, by the rules of its name.

    Raises UserError (exit DATA): a name of no known vocabulary; the line that is damaged, out of order, or whose token
    no merge of two before it makes; a byte without a line; fewer lines than the published file of that name has.
    """
    named = next((name for name in RULES if name in path.name), None)
    if named is None:
        unsaid = f"{path} does not say how a text is cut, and its name is of no known vocabulary"
        raise UserError(f"{unsaid}: let the name have {' or '.join(RULES)} in it, whichever it is", DATA)
    pattern, special, published = RULES[named]
    rank_of: dict[bytes, int] = {}
    merges = []
    for number, line in enumerate(text.split("\n"), 1):
        if not (line := line.removesuffix("\r")):
            continue
        try:
            written, rank = line.split(" ")
            token = base64.b64decode(written, validate=True)
            if rank != str(len(rank_of)) or token in rank_of or not 1 <= len(token) <= LONGEST:
                raise ValueError
            if len(token) > 1:
                left, right = _joined([token[i : i + 1] for i in range(len(token))], rank_of)
                merges.append((rank_of[left], rank_of[right]))
        except (ValueError, KeyError):
            fault = f"line {number} is not a new token of two before it, in base64, a space and {len(rank_of)}"
            raise UserError(f"{path} is damaged: {fault}; {_AGAIN}", DATA) from None
        rank_of[token] = len(rank_of)
    size = len(rank_of)
    if missing := [byte for byte in range(256) if bytes([byte]) not in rank_of]:
        raise UserError(f"{path}: no line has the byte {missing[0]}; {_AGAIN}", DATA)
    if path.stem == f"{named}_base" and size != published:
        sizes = f"{path} ends after {size:,} tokens, and the published file has {published:,}"
        raise UserError(f"{sizes}: {_AGAIN}, or give it another name with {named} in it", DATA)
    return Vocabulary([*rank_of], merges, pattern, {name: size + place for name, place in special.items()})


def _joined(parts: list[bytes], rank_of: Mapping[bytes, int]) -> list[bytes]:
    """Return the parts with neighbours joined to tokens, the lowest rank first."""
    while known := [(rank_of[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in rank_of]:
        at = min(known)[1]
        parts = [*parts[:at], parts[at] + parts[at + 1], *parts[at + 2 :]]
    return parts
