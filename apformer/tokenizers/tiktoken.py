"""Read vocabularies of `tiktoken`, such as GPT-4's cl100k_base: each line is a token in base64, a space and its rank.

    IQ== 0
    Ig== 1

The rank of a token is its id and its priority: of all neighbours that make up a token, those with the lowest rank are
merged first. A file lists no merges, but they follow from the ranks: the merges below rank r join the bytes of token r
to two tokens, and merge r joins these two. A file also lacks the pattern that cuts a text, and the special tokens.
`tiktoken` has them in its code, by the name of the vocabulary, and so has this module.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from apformer.errors import DATA, UserError
from apformer.tokenizers.byte_pairs import Pair, merge_steps
from apformer.tokenizers.chunks import GPT2_PATTERN, GPT4_PATTERN

LONGEST = 256  # bytes of a token; 128 in GPT-4's
_MIDDLE = {"<|fim_prefix|>": 2, "<|fim_middle|>": 3, "<|fim_suffix|>": 4}
# {name: (pattern, special tokens with ids counted from the size, size of the published file)}
RULES = {
    "cl100k": (GPT4_PATTERN, {"<|endoftext|>": 1, **_MIDDLE, "<|endofprompt|>": 20}, 100_256),  # 100257, 100276
    "r50k": (GPT2_PATTERN, {"<|endoftext|>": 0}, 50_256),  # GPT-2's
}
_AGAIN = "fetch the file again"


class Vocabulary(NamedTuple):
    """A vocabulary of byte pairs."""

    tokens: list[bytes]
    merges: Sequence[Pair]
    """Pairs of ids, in the order in which they are merged."""
    pattern: str
    special_tokens: Mapping[str, int]


def parse(text: str, path: Path) -> Vocabulary:
    """Return the vocabulary of the text of a file, with the pattern and special tokens that belong to its name.

    Raises UserError (exit DATA): if the name is unknown; for a line that is damaged, out of order, or not a merge of
    two tokens before it; for a byte without a line; for fewer lines than the published file of that name has.
    """
    name = next((name for name in RULES if name in path.name), None)
    if name is None:
        fault = f"{path} does not say how a text is cut, and its name is of no known vocabulary"
        raise UserError(
            f"{fault}: put {' or '.join(RULES)} into its name if it is that; others are not supported", DATA
        )
    pattern, special, published = RULES[name]
    rank_of: dict[bytes, int] = {}
    merges: dict[Pair, tuple[int, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        try:
            encoded, rank = line.split(" ")
            token = base64.b64decode(encoded, validate=True)
            if rank != str(len(rank_of)) or token in rank_of or not 1 <= len(token) <= LONGEST:
                raise ValueError
            if len(token) > 1:
                *_, (left, right) = merge_steps([rank_of[bytes([byte])] for byte in token], merges)
                merges[left, right] = len(rank_of), len(rank_of)
        except (ValueError, KeyError):
            fault = f"line {number} is not a new pair of earlier tokens in base64, a space and {len(rank_of)}"
            raise UserError(f"{path} is damaged: {fault}; {_AGAIN}", DATA) from None
        rank_of[token] = len(rank_of)
    size = len(rank_of)
    if missing := [byte for byte in range(256) if bytes([byte]) not in rank_of]:
        raise UserError(f"{path}: no line has the byte {missing[0]}; {_AGAIN}", DATA)
    if path.stem == f"{name}_base" and size != published:
        sizes = f"{path} ends after {size:,} tokens, and the published file has {published:,}"
        raise UserError(f"{sizes}: {_AGAIN}, or give it another name with {name} in it", DATA)
    return Vocabulary([*rank_of], [*merges], pattern, {token: size + place for token, place in special.items()})
