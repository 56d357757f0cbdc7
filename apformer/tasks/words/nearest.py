"""Words that are near others, by the cosine of their vectors."""

import difflib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files, word2vec
from apformer.errors import USAGE, UserError
from apformer.settings import Settings
from apformer.tasks.words import corpus
from apformer.tokenizers import words

Params = dict[str, jax.Array]  # of word2vec


def neighbours(params: Params, path: Path, given: list[str], count: int) -> str:
    """Return a table of the words nearest to others, for the run at `path`; without `given`, to words of doubling rank.

    Raises:
        UserError: Exit code USAGE; it names a word which the vocabulary lacks.
    """
    lines = files.read_text(path / corpus.FILE).splitlines()
    vocabulary = [line.split("\t")[0] for line in lines]
    given = _known(given, vocabulary, "", f"none of the {len(vocabulary):,} words of {path}: ask for")
    return table(nearest(params, vocabulary, given or _of_doubling_rank(vocabulary), count))


def shown(settings: Settings, vocabulary: list[str]) -> list[str]:
    """Return the words of --words, or else those of doubling rank; of progressions, all.

    Raises:
        UserError: Exit code USAGE; it names a word which the vocabulary lacks.
    """
    cfg, options = settings.data, settings.options
    if options.words is None:
        return vocabulary if cfg.text is None else _of_doubling_rank(vocabulary)
    known = f"none of the {len(vocabulary):,} words that occur {cfg.min_count} times or more"
    return _known(options.words.split(","), vocabulary, "--words ", f"{known}: lower --min_count, or ask for")


def _known(given: list[str], vocabulary: list[str], flag: str, fault: str) -> list[str]:
    """Return words as the vocabulary has them, or refuse the first that it lacks."""
    given = [words.normal(word.strip()) for word in given]
    for word in given:
        if word not in vocabulary:
            raise UserError(f"{flag}{word} is {fault} a word such as {similar(word, vocabulary)}", USAGE)
    return given


def similar(word: str, vocabulary: list[str]) -> str:
    """Return a word of similar spelling, or else one in the middle: the most frequent words say little."""
    return [*difflib.get_close_matches(word, vocabulary, n=1, cutoff=0.75), vocabulary[len(vocabulary) // 2]][0]


def nearest(params: Params, vocabulary: list[str], given: list[str], count: int) -> dict[str, list[tuple[str, float]]]:
    """Return {word: [(neighbour, cosine), ...]}, the nearest first."""
    rows = jnp.asarray([vocabulary.index(word) for word in given], jnp.int32)
    nearest_BK, cosine_BK = map(np.asarray, word2vec.nearest(params, rows, min(count, len(vocabulary) - 1)))
    pairs = (zip(*row, strict=True) for row in zip(nearest_BK.tolist(), cosine_BK.tolist(), strict=True))
    return {word: [(vocabulary[v], cosine) for v, cosine in row] for word, row in zip(given, pairs, strict=True)}


def table(near: dict[str, list[tuple[str, float]]]) -> str:
    """Return a line for each word, with its neighbours and their cosines."""
    width = max(map(len, near))
    lines = (f"{word:{width}}  {', '.join(f'{v} {c:.2f}' for v, c in row)}" for word, row in near.items())
    return "\n".join(lines)


def _of_doubling_rank(vocabulary: list[str]) -> list[str]:
    return [vocabulary[2**k - 1] for k in range(len(vocabulary).bit_length())]
