"""Cut a text into byte pairs in other ways each time (BPE-dropout), so that a model learns the parts of words.

    until no merge applies: leave out each that does with probability p, and do the earliest of the others;
    end where all are left out

With p = 0 these are the tokens of `encode`, with p = 1 the bytes. Provilkov, Emelianenko and Voita 2020
(arXiv 1910.13267). The `tokenizers` library does it too, but draws from a source of its own, which has no seed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from apformer.tokenizers import merges
from apformer.tokenizers.chunks import split
from apformer.tokenizers.text import BytePairs

WAYS = 16  # in which a chunk is cut: each time it occurs, one of them is drawn


def cuts(
    tokenizer: BytePairs,
    texts: Sequence[str],
    share: float,
    seed: int,
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> Iterator[list[np.ndarray]]:
    """Yield the int32 tokens of all texts, without end, cut anew each time.

    Args:
        tokenizer: As `train_byte_pairs` makes it.
        texts: The texts.
        share: p, in [0, 1].
        seed: Seed of all cuts.
        progress: Iterates over the different words, which takes the square of their lengths.
    """
    how, rng = merges.of(tokenizer), np.random.default_rng(seed)
    rank = {(left, right): (i, made) for i, (left, right, made) in enumerate(how["merges"])}
    chunks = [split(text) for text in texts]
    ways = {}
    for chunk in progress(dict.fromkeys(chunk for row in chunks for chunk in row)):
        tokens = [how["bytes"][byte] for byte in chunk.encode("utf-8")]
        ways[chunk] = [np.array(merged(tokens, rank, share, rng), np.int32) for _ in range(WAYS)]
    rows = [[ways[chunk] for chunk in row] for row in chunks]
    ends = np.cumsum([len(row) for row in rows])
    while True:
        drawn = np.split(rng.integers(WAYS, size=ends[-1]), ends[:-1])
        yield [
            np.concatenate([np.zeros(0, np.int32), *(found[way] for found, way in zip(row, chosen, strict=True))])
            for row, chosen in zip(rows, drawn, strict=True)
        ]


def merged(
    tokens: Sequence[int], rank: dict[tuple[int, int], tuple[int, int]], share: float, rng: np.random.Generator
) -> list[int]:
    """Return one way to merge tokens; `rank` has the number of each merge, and the token it makes."""
    tokens = list(tokens)
    while True:
        known = [(*rank[pair], at) for at, pair in enumerate(pairwise(tokens)) if pair in rank]
        left = [merge for merge, drawn in zip(known, rng.random(len(known)), strict=True) if drawn >= share]
        if not left:
            return tokens
        _, made, at = min(left)
        tokens[at : at + 2] = [made]
