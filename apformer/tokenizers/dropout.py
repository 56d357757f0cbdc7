"""Byte pairs with dropout: a text is cut in other ways each time, so that a model learns what the parts of words mean.

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
    """Time and again the tokens of all texts, int32 arrays, cut anew.

    share: p, in [0, 1]. tokenizer: as `train_byte_pairs` makes it. progress: goes through the different words, which is
    what takes time: the square of their lengths. Raises UserError (exit DATA) for a lone surrogate.
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
    """One way to merge tokens. rank: of each pair that can be merged, which merge that is, and the token it makes."""
    tokens = list(tokens)
    while True:
        known = [(*rank[pair], at) for at, pair in enumerate(pairwise(tokens)) if pair in rank]
        kept = [merge for merge, drawn in zip(known, rng.random(len(known)), strict=True) if drawn >= share]
        if not kept:
            return tokens
        _, made, at = min(kept)
        tokens[at : at + 2] = [made]
