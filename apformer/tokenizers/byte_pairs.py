"""Byte pair encoding in its readable form: count pairs, merge the most frequent, repeat.

A text is cut into chunks (words with the space before them, numbers, marks), and each chunk is a row of bytes. Training
merges, time after time, the pair of neighbouring tokens that occurs most often into one new token:

    pair* = argmax over (a, b) of  sum over chunks c of  count(c) * #{i : c_i = a, c_i+1 = b}

Of pairs that occur equally often the one with the lowest ids (a, b) is merged, as in the `tokenizers` library. Tokens 0
to 255 are the bytes in GPT-2's order, those that print first; token 256 + i is what merge i makes. Encoding replays the
merges in their order. Every text is some row of bytes, so nothing is unknown and `decode` inverts `encode`.

Merging pairs of symbols within words: Sennrich, Haddow and Birch (2016), arXiv 1508.07909. Bytes as the symbols: GPT-2
(Radford et al., 2019). The pattern: GPT-4's vocabulary, cl100k_base of `tiktoken`. This file is for reading; in use,
`text_tokenizer` has the library find and apply the same merges.
"""

from collections import Counter
from itertools import pairwise

from apformer.errors import USAGE, UserError

GPT4_PATTERN = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",  # the end of a contraction
        r"[^\r\n\p{L}\p{N}]?\p{L}+",  # a word, and the space or mark before it
        r"\p{N}{1,3}",  # a number, three digits at a time
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",  # marks, the space before them, the line ends after them
        r"\s*[\r\n]+",  # blank up to the last line end
        r"\s+(?!\S)",  # spaces, all but the one that belongs to the word after them
        r"\s+",
    ]
)
_PRINTING = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
BYTES = (*_PRINTING, *sorted(set(range(256)) - set(_PRINTING)))  # the byte of each token below 256
_TOKEN_OF = {byte: token for token, byte in enumerate(BYTES)}


def library():
    """The `tokenizers` package. Raises UserError (exit USAGE) where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise UserError('byte pairs need the text extra: pip install -e ".[text]"', USAGE) from None
    return tokenizers


def split(text: str) -> list[str]:
    """The chunks of a text by GPT-4's pattern; joined they are the text. No merge crosses from one to the next."""
    tokenizers = library()  # Python's own `re` has no \p{L}.
    by_pattern = tokenizers.pre_tokenizers.Split(tokenizers.Regex(GPT4_PATTERN), "isolated")
    return [chunk for chunk, _ in by_pattern.pre_tokenize_str(text)]


def train(text: str, vocab_size: int) -> list[tuple[int, int]]:
    """The pairs of tokens to merge, the first merge first.

    Returns vocab_size - 256 pairs, fewer if every chunk has become one token before that.
    """
    count_of = Counter(split(text))
    chunks = [(_to_bytes(chunk), count) for chunk, count in count_of.items()]
    merges = []
    while len(merges) < vocab_size - 256:
        pairs = Counter()
        for tokens, count in chunks:
            for pair in pairwise(tokens):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        chunks = [(_merge(tokens, best, 256 + len(merges)), count) for tokens, count in chunks]
        merges.append(best)
    return merges


def encode(text: str, merges: list[tuple[int, int]]) -> list[int]:
    """Tokens of a text: in every chunk the earliest merge that applies, until none does."""
    rank = {pair: i for i, pair in enumerate(merges)}
    row = []
    for chunk in split(text):
        tokens = _to_bytes(chunk)
        while known := [pair for pair in pairwise(tokens) if pair in rank]:
            first = min(known, key=rank.get)
            tokens = _merge(tokens, first, 256 + rank[first])
        row += tokens
    return row


def decode(tokens: list[int], merges: list[tuple[int, int]]) -> str:
    """Text of a row of tokens; bytes that are no UTF-8 become U+FFFD. Raises KeyError for a token that is none."""
    bytes_of = {token: bytes([byte]) for token, byte in enumerate(BYTES)}
    for i, (left, right) in enumerate(merges):
        bytes_of[256 + i] = bytes_of[left] + bytes_of[right]
    return b"".join(bytes_of[token] for token in tokens).decode("utf-8", errors="replace")


def _to_bytes(chunk):
    return [_TOKEN_OF[byte] for byte in chunk.encode("utf-8")]


def _merge(tokens, pair, new):
    """`tokens` with `new` in the place of each `pair`, from left to right: of a a a the first two."""
    merged, i = [], 0
    while i < len(tokens):
        found = (*tokens[i : i + 2],) == pair
        merged.append(new if found else tokens[i])
        i += 2 if found else 1
    return merged
