"""Words that are near others, by the cosine of their vectors."""

import difflib

import jax.numpy as jnp
import numpy as np

from apformer import files, word2vec
from apformer.errors import USAGE, UserError
from apformer.tasks.words import corpus


def neighbours(params, path, given, count):
    """A table of the words nearest to others, for the run at `path`; without `given`, to words of doubling rank.

    Raises UserError (exit USAGE) that names a word which the vocabulary lacks.
    """
    lines = files.read_text(path / corpus.FILE).splitlines()
    vocabulary = [line.split("\t")[0] for line in lines]
    given = [word.lower() for word in given]
    for word in given:
        if word not in vocabulary:
            known = f"{word} is none of the {len(vocabulary):,} words of {path}"
            raise UserError(f"{known}: ask for a word such as {similar(word, vocabulary)}", USAGE)
    return table(nearest(params, vocabulary, given or _of_doubling_rank(vocabulary), count))


def asked(settings, vocabulary):
    """The words of --words, or else those of doubling rank; of progressions, all.

    Raises UserError (exit USAGE) that names a word which the vocabulary lacks.
    """
    cfg, options = settings.data, settings.options
    if options.words is None:
        return vocabulary if cfg.text is None else _of_doubling_rank(vocabulary)
    given = [word.strip().lower() for word in options.words.split(",")]
    for word in given:
        if word not in vocabulary:
            known = f"none of the {len(vocabulary):,} words that occur {cfg.min_count} times or more"
            remedy = f"lower --min_count, or ask for a word such as {similar(word, vocabulary)}"
            raise UserError(f"--words {word} is {known}: {remedy}", USAGE)
    return given


def similar(word, vocabulary):
    """A word of similar spelling, or else one in the middle: the most frequent words say little."""
    return [*difflib.get_close_matches(word, vocabulary, n=1, cutoff=0.75), vocabulary[len(vocabulary) // 2]][0]


def nearest(params, vocabulary, given, count):
    """{word: [(neighbour, cosine), ...]}, the nearest first."""
    rows = jnp.asarray([vocabulary.index(word) for word in given], jnp.int32)
    nearest_BK, cosine_BK = map(np.asarray, word2vec.nearest(params, rows, min(count, len(vocabulary) - 1)))
    pairs = (zip(*row, strict=True) for row in zip(nearest_BK.tolist(), cosine_BK.tolist(), strict=True))
    return {word: [(vocabulary[v], cosine) for v, cosine in row] for word, row in zip(given, pairs, strict=True)}


def table(near):
    """A line for each word, with its neighbours and their cosines."""
    width = max(map(len, near))
    lines = (f"{word:{width}}  {', '.join(f'{v} {c:.2f}' for v, c in row)}" for word, row in near.items())
    return "\n".join(lines)


def _of_doubling_rank(vocabulary):
    return [vocabulary[2**k - 1] for k in range(len(vocabulary).bit_length())]
