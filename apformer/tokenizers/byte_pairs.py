"""Byte pair encoding in plain Python: count pairs, merge the most frequent, repeat.

    tokenizer = byte_pairs.train("aaabdaaabac", 256 + 3)
    tokenizer.encode("aaabdaaabac")              # [258, 100, 258, 97, 99]
    tokenizer.decode([258, 100, 258, 97, 99])    # "aaabdaaabac"
    tokenizer.vocab[258]                         # b"aaab"
    tokenizer.save("toy.model")                  # byte_pairs.load("toy.model") reads it

A text is cut into chunks (words with the space before them, numbers, marks), and each chunk is a row of bytes. Training
repeatedly merges the most frequent pair of neighbouring tokens into a new token:

    pair* = argmax over (a, b) of  sum over chunks c of  count(c) * #{i : c_i = a, c_i+1 = b}

Ties go to the pair that occurs first in the text. Tokens 0 to 255 are the bytes; token 256 + i is the result of
merge i. Encoding replays the merges in their order. Every text is a row of bytes, so no text is unknown, and `decode`
inverts `encode`. Ids, merges and files are those of `minbpe`.

Merging pairs of symbols within words: Sennrich, Haddow and Birch (2016), arXiv 1508.07909. Bytes as the symbols: GPT-2
(Radford et al., 2019). This file is for readers; models use the `tokenizers` library instead, see `text.BytePairs`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from apformer.errors import DATA, UserError
from apformer.files import AnyPath, read_text, write_text
from apformer.tokenizers.chunks import GPT4_PATTERN, refuse_special, split

Pair = tuple[int, int]
VERSION = "minbpe v1"  # first line of a file
LONGEST = 2**24  # total bytes of the tokens of a file; the length of a token can double with each merge


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer by byte pairs: the pairs of tokens to merge, in the order of training."""

    merges: tuple[Pair, ...] = ()
    pattern: str = GPT4_PATTERN
    """Regular expression that cuts a text into chunks; "" does not cut it."""
    special_tokens: Mapping[str, int] = field(default_factory=dict)
    """Ids of special tokens, such as {"<|endoftext|>": 100257}."""

    @cached_property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every token."""
        bytes_of = {byte: bytes([byte]) for byte in range(256)}
        for i, (left, right) in enumerate(self.merges):
            bytes_of[256 + i] = bytes_of[left] + bytes_of[right]
        return bytes_of | {token: name.encode() for name, token in self.special_tokens.items()}

    def encode(self, text: str, allowed_special: str | Collection[str] = ()) -> list[int]:
        """Return the tokens of a text. In every chunk the earliest merge that applies is made, until none does.

        allowed_special: names of special tokens that are encoded as such, or "all". Raises UserError (exit DATA) that
        names any other special token in the text, or a lone surrogate.
        """
        refuse_special(text, self.special_tokens, allowed_special)
        names = sorted(self.special_tokens, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
        row = []
        for part in parts:
            if part in self.special_tokens:
                row.append(self.special_tokens[part])
            else:
                for chunk in split(part, self.pattern):
                    *_, tokens = merge_steps([*chunk.encode()], self._merge_of)
                    row += tokens
        return row

    @cached_property
    def _merge_of(self) -> dict[Pair, tuple[int, int]]:
        return {pair: (i, 256 + i) for i, pair in enumerate(self.merges)}

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens, with U+FFFD for invalid UTF-8. Raises UserError (exit DATA) for unknown ids."""
        tokens = list(tokens)
        for position, token in enumerate(tokens, 1):
            if token not in self.vocab:
                raise UserError(f"token {position} is {token}, which the vocabulary lacks; give ids of .vocab", DATA)
        return b"".join(self.vocab[token] for token in tokens).decode(errors="replace")

    def save(self, path: AnyPath) -> None:
        """Write a file that `load` and `minbpe` read. Raises UserError (exit DISK) if it cannot be written."""
        special = [f"{name} {token}" for name, token in self.special_tokens.items()]
        merges = [f"{left} {right}" for left, right in self.merges]
        write_text(path, "\n".join([VERSION, self.pattern, str(len(special)), *special, *merges]) + "\n")


def train(text: str, vocab_size: int, pattern: str = GPT4_PATTERN) -> Tokenizer:
    """Learn vocab_size - 256 merges from a text, or fewer if every chunk is one token before that.

    Raises UserError: USAGE if vocab_size is under 256, DATA for a lone surrogate.
    """
    if vocab_size < 256:
        raise UserError(f"vocab_size {vocab_size} is under 256, the number of bytes: give 256 or more")
    chunks = [([*chunk.encode()], count) for chunk, count in Counter(split(text, pattern)).items()]
    merges = []
    while len(merges) < vocab_size - 256 and (counts := count_pairs(chunks)):
        best = max(counts, key=counts.__getitem__)  # of equal counts, the first pair
        chunks = [(merge(tokens, best, 256 + len(merges)), count) for tokens, count in chunks]
        merges.append(best)
    return Tokenizer(tuple(merges), pattern)


def count_pairs(chunks: Iterable[tuple[list[int], int]]) -> Counter:
    """Count the pairs of neighbours in chunks; chunks: (tokens of a chunk, its count in the text)."""
    counts = Counter()
    for tokens, count in chunks:
        for pair in pairwise(tokens):
            counts[pair] += count
    return counts


def merge_steps(tokens: list[int], merge_of: Mapping[Pair, tuple[int, int]]) -> Iterator[list[int]]:
    """Yield a row of tokens, and the row after each merge; the earliest merge that applies is made first.

    merge_of: {pair: (number of its merge, new token)}.
    """
    yield tokens
    while candidates := [pair for pair in pairwise(tokens) if pair in merge_of]:
        first = min(candidates, key=merge_of.__getitem__)
        tokens = merge(tokens, first, merge_of[first][1])
        yield tokens


def merge(tokens: list[int], pair: Pair, new: int) -> list[int]:
    """Replace each `pair` by `new`, from left to right: in a a a the first two are merged."""
    merged, i = [], 0
    while i < len(tokens):
        is_pair = tuple(tokens[i : i + 2]) == pair
        merged.append(new if is_pair else tokens[i])
        i += 2 if is_pair else 1
    return merged


def load(path: AnyPath) -> Tokenizer:
    """Read a file that `save` or `minbpe` wrote. Raises UserError (exit DATA) that names file and line."""
    return parse(read_text(path, "give a file that `save` wrote", DATA), path)


def parse(text: str, path: AnyPath) -> Tokenizer:
    """Return the tokenizer in the text of a file that `save` wrote; path: name of that file. Raises as `load`."""
    lines = text.removesuffix("\n").split("\n")
    number = 1
    special = {}
    merges = []
    lengths = [1] * 256
    total = 256
    try:
        version, pattern, count = lines[:3]
        if version != VERSION:
            raise ValueError
        for number, line in enumerate(lines[3:], 4):
            if len(special) < int(count):
                name, token = line.rsplit(" ", 1)
                special[name] = int(token)
                if not name or len({*special.values()}) < number - 3:
                    raise ValueError
            else:
                left, right = map(int, line.split(" "))
                lengths.append(lengths[left] + lengths[right])
                merges.append((left, right))
                if min(left, right) < 0 or (total := total + lengths[-1]) > LONGEST:
                    raise ValueError
        if len(special) != int(count) or any(id < len(lengths) for id in special.values()):
            raise ValueError
    except (ValueError, IndexError):
        fault = f'line {number} is not what "{VERSION}" has there'
        raise UserError(f"{path} is damaged: {fault}; save the tokenizer again", DATA) from None
    return Tokenizer(tuple(merges), pattern, special)
