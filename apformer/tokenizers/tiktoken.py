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
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from apformer.errors import DATA, UserError
from apformer.tokenizers.chunks import GPT2_PATTERN, GPT4_PATTERN

LINE = re.compile(r"([A-Za-z0-9+/]*=*) ([0-9]+)")
LONGEST = 256  # bytes of a token; those of GPT-4 have up to 128
_AGAIN = "fetch the file again"


class Rules(NamedTuple):
    """What a program knows of a vocabulary. Ids of special tokens are counted from the number of tokens in the file."""

    pattern: str
    special_tokens: Mapping[str, int]
    size: int
    """Tokens in the published file."""


_MIDDLE = {"<|fim_prefix|>": 2, "<|fim_middle|>": 3, "<|fim_suffix|>": 4}
RULES = {
    "cl100k": Rules(GPT4_PATTERN, {"<|endoftext|>": 1, **_MIDDLE, "<|endofprompt|>": 20}, 100_256),  # 100257, 100276
    "r50k": Rules(GPT2_PATTERN, {"<|endoftext|>": 0}, 50_256),  # GPT-2's
}


def is_one(text: str) -> bool:
    """Whether a text begins as such a file does."""
    found = LINE.fullmatch(text.partition("\n")[0].rstrip("\r"))
    return found is not None and found[2] == "0"


def rules(path: str | Path, size: int) -> Rules:
    """The rules of a file by its name, with the ids of its special tokens; size: the number of its tokens.

    Raises UserError (exit DATA) if the name is not known, or the file is not the published one of that name.
    """
    path = Path(path)
    named = next((name for name in RULES if name in path.name), None)
    if named is None:
        unsaid = f"{path} does not say how a text is cut, and its name is of no known vocabulary"
        raise UserError(f"{unsaid}: let the name have {' or '.join(RULES)} in it, whichever it is", DATA)
    found = RULES[named]
    if path.stem == f"{named}_base" and size != found.size:
        sizes = f"{path} ends after {size:,} tokens, and the published file has {found.size:,}"
        raise UserError(f"{sizes}: {_AGAIN}, or give it another name with {named} in it", DATA)
    return found._replace(special_tokens={name: size + at for name, at in found.special_tokens.items()})


def parse(text: str, path: str | Path) -> tuple[list[bytes], list[int]]:
    """(the tokens of the text of a file by their rank, the line of each). path: what to call it.

    Raises UserError (exit DATA) that names the line: one that is cut or no base64, a rank or a token that stands twice,
    a rank that is missing.
    """
    line_of, rank_of = {}, {}  # a rank, a token
    for number, line in enumerate(text.split("\n"), 1):
        if not (line := line.removesuffix("\r")):
            continue
        found = LINE.fullmatch(line)
        if found is None:
            _refuse(path, number, "it is no token in base64, a space and a rank")
        written, rank = found[1], int(found[2][:10])
        try:
            token = base64.b64decode(written, validate=True)
        except ValueError as error:
            _refuse(path, number, f"{_short(written)} is no base64 ({error})")
        if not 1 <= len(token) <= LONGEST:
            _refuse(path, number, f"its token has {len(token):,} bytes, and 1 to {LONGEST} are known")
        if rank in line_of:
            _refuse(path, number, f"line {line_of[rank]} has its rank {rank} too")
        if token in rank_of:
            _refuse(path, number, f"line {line_of[rank_of[token]]} has its token {_short(written)} too")
        line_of[rank], rank_of[token] = number, rank
    if not rank_of:
        raise UserError(f"{path} is empty: {_AGAIN}", DATA)
    tokens = sorted(rank_of, key=rank_of.get)
    for rank, token in enumerate(tokens):
        if rank_of[token] != rank:
            _refuse(path, line_of[rank_of[token]], f"it has rank {rank_of[token]}, and no line has rank {rank}")
    for byte in range(256):
        if bytes([byte]) not in rank_of:
            raise UserError(
                f"{path}: no line has the byte {byte}, {base64.b64encode(bytes([byte])).decode()}; {_AGAIN}", DATA
            )
    return tokens, [line_of[rank] for rank in range(len(tokens))]


def merges(tokens: list[bytes], lines: list[int], path: str | Path) -> list[tuple[int, int]]:
    """The ids that each token beyond a byte is merged from, in the order of the ranks.

    Raises UserError (exit DATA) that names the line of a token that no merge of two before it makes.
    """
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    found = []
    for rank, token in enumerate(tokens):
        if len(token) == 1:
            continue
        parts = join([token[i : i + 1] for i in range(len(token))], rank_of, rank)
        if len(parts) != 2:
            _refuse(path, lines[rank], f"its token is not made of two tokens of lower rank, but of {len(parts)}")
        found.append((rank_of[parts[0]], rank_of[parts[1]]))
    return found


def join(parts: list[bytes], rank_of: Mapping[bytes, int], below: int) -> list[bytes]:
    """Parts with neighbours joined to tokens whose rank is less than `below`, the lowest rank first."""
    while True:
        ranks = [rank_of.get(left + right, below) for left, right in pairwise(parts)]
        least = min(ranks, default=below)
        if least >= below:
            return parts
        at = ranks.index(least)
        parts = [*parts[:at], parts[at] + parts[at + 1], *parts[at + 2 :]]


def _short(written):
    return written if len(written) <= 40 else written[:40] + "..."


def _refuse(path, number, fault):
    raise UserError(f"{path}, line {number}: {fault}; {_AGAIN}", DATA)
