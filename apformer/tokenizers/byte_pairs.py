"""Byte pair encoding in its readable form: count pairs, merge the most frequent, repeat.

    tokenizer = byte_pairs.train("aaabdaaabac", 256 + 3)
    tokenizer.encode("aaabdaaabac")              # [258, 100, 258, 97, 99]
    tokenizer.decode([258, 100, 258, 97, 99])    # "aaabdaaabac"
    tokenizer.vocab[258]                         # b"aaab"
    tokenizer.save("toy.model")                  # byte_pairs.load("toy.model") reads it

A text is cut into chunks (words with the space before them, numbers, marks), and each chunk is a row of bytes. Training
merges, time after time, the pair of neighbouring tokens that occurs most often into one new token:

    pair* = argmax over (a, b) of  sum over chunks c of  count(c) * #{i : c_i = a, c_i+1 = b}

Of pairs that occur equally often the one that the text has first is merged. Tokens 0 to 255 are the bytes themselves;
token 256 + i is what merge i makes. Encoding replays the merges in their order. Every text is some row of bytes, so
nothing is unknown and `decode` inverts `encode`. Ids, merges and files are those of `minbpe`.

Merging pairs of symbols within words: Sennrich, Haddow and Birch (2016), arXiv 1508.07909. Bytes as the symbols: GPT-2
(Radford et al., 2019). This file is for reading; in use the `tokenizers` library does the same, see `text.BytePairs`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from apformer.errors import DATA, USAGE, UserError
from apformer.files import write_text
from apformer.tokenizers.chunks import GPT4_PATTERN, refuse_special, split

VERSION = "minbpe v1"  # the first line of a file
LONGEST = 2**24  # bytes of all tokens of a file together: each merge can double the length of a token


@dataclass(frozen=True)
class Tokenizer:
    """Byte pairs: the pairs of tokens to merge, the first merge first."""

    merges: tuple[tuple[int, int], ...] = ()
    pattern: str = GPT4_PATTERN
    """How a text is cut into chunks; "" leaves it whole."""
    special_tokens: Mapping[str, int] = field(default_factory=dict)
    """The id of each; such as {"<|endoftext|>": 100257}."""

    @cached_property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every token."""
        bytes_of = {byte: bytes([byte]) for byte in range(256)}
        for i, (left, right) in enumerate(self.merges):
            bytes_of[256 + i] = bytes_of[left] + bytes_of[right]
        return bytes_of | {token: name.encode("utf-8") for name, token in self.special_tokens.items()}

    def encode(self, text: str, allowed_special: str | Collection[str] = ()) -> list[int]:
        """Tokens of a text: in every chunk the earliest merge that applies, until none does.

        allowed_special: "all", or the names of special tokens that are read as such. Raises UserError (exit DATA) that
        names another one in the text, or a lone surrogate.
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
                    row += self._merged(list(chunk.encode("utf-8")))
        return row

    def _merged(self, tokens):
        while known := [pair for pair in pairwise(tokens) if pair in self._rank]:
            first = min(known, key=self._rank.get)
            tokens = merge(tokens, first, 256 + self._rank[first])
        return tokens

    @cached_property
    def _rank(self):
        return {pair: i for i, pair in enumerate(self.merges)}

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD. Raises UserError (exit DATA) for one that is none."""
        tokens = list(tokens)
        for position, token in enumerate(tokens, 1):
            if token not in self.vocab:
                raise UserError(f"token {position} is {token}, which the vocabulary lacks; give ids of .vocab", DATA)
        return b"".join(self.vocab[token] for token in tokens).decode("utf-8", errors="replace")

    def save(self, path: str | Path) -> None:
        """Write a file that `load` and `minbpe` read. Raises UserError (exit DISK) if it cannot be written."""
        special = [f"{name} {token}" for name, token in self.special_tokens.items()]
        merges = [f"{left} {right}" for left, right in self.merges]
        write_text(path, "\n".join([VERSION, self.pattern, str(len(special)), *special, *merges]) + "\n")


def train(text: str, vocab_size: int, pattern: str = GPT4_PATTERN) -> Tokenizer:
    """Learn vocab_size - 256 merges from a text, fewer if every chunk has become one token before that.

    Raises UserError: USAGE if vocab_size is under 256, DATA for a lone surrogate.
    """
    if vocab_size < 256:
        raise UserError(f"vocab_size {vocab_size} is under 256, the number of bytes: give 256 or more", USAGE)
    chunks = [(list(chunk.encode("utf-8")), count) for chunk, count in Counter(split(text, pattern)).items()]
    merges = []
    while len(merges) < vocab_size - 256 and (counts := count_pairs(chunks)):
        best = max(counts, key=counts.get)  # of several the first that was counted
        chunks = [(merge(tokens, best, 256 + len(merges)), count) for tokens, count in chunks]
        merges.append(best)
    return Tokenizer(tuple(merges), pattern)


def count_pairs(chunks: Iterable[tuple[list[int], int]]) -> Counter:
    """How often each pair of neighbours occurs in chunks, each of which stands `count` times in the text."""
    counts = Counter()
    for tokens, count in chunks:
        for pair in pairwise(tokens):
            counts[pair] += count
    return counts


def merge(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """`tokens` with `new` in the place of each `pair`, from left to right: of a a a the first two."""
    merged, i = [], 0
    while i < len(tokens):
        found = (*tokens[i : i + 2],) == pair
        merged.append(new if found else tokens[i])
        i += 2 if found else 1
    return merged


def load(path: str | Path) -> Tokenizer:
    """The tokenizer of a file that `save` or `minbpe` wrote. Raises UserError (exit DATA) that names file and line."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}): give a file that `save` wrote", DATA) from None
    return parse(text, path)


def parse(text: str, path: str | Path) -> Tokenizer:
    """The tokenizer of the text of such a file; path: what to call it. Raises as `load`."""
    lines = text.removesuffix("\n").split("\n")

    def refuse(number, fault):
        raise UserError(f"{path}, line {number}: {fault}; save the tokenizer again", DATA)

    if lines[0] != VERSION:
        refuse(1, f'it is not "{VERSION}"')
    if len(lines) < 3 or not re.fullmatch("[0-9]{1,9}", lines[2]):
        refuse(3, "it is not the number of special tokens")
    begin, special, merges = 3 + int(lines[2]), {}, []
    if begin > len(lines):
        refuse(len(lines), f"the file is cut, {lines[2]} special tokens should follow line 3")
    for number, line in enumerate(lines[3:begin], 4):
        name, _, token = line.rpartition(" ")
        if not name or name in special or not re.fullmatch("[0-9]{1,9}", token):
            refuse(number, "it is not a new special token and its id")
        special[name] = int(token)
    lengths, total = [1] * 256, 256
    for number, line in enumerate(lines[begin:], begin + 1):
        if not re.fullmatch("[0-9]{1,9} [0-9]{1,9}", line):
            refuse(number, "it is not a pair of ids")
        pair = tuple(map(int, line.split()))
        if max(pair) >= 256 + len(merges):
            refuse(number, f"{max(pair)} is made by no line before it")
        merges.append(pair)
        lengths.append(lengths[pair[0]] + lengths[pair[1]])
        if (total := total + lengths[-1]) > LONGEST:
            refuse(number, f"the tokens up to it have more than {LONGEST:,} bytes")
    ids = [*special.values()]
    if len({*ids}) < len(ids) or any(token < 256 + len(merges) for token in ids):
        refuse(4, "special tokens share an id with each other or with a merge")
    return Tokenizer(tuple(merges), lines[1], special)
