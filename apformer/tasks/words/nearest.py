"""Nearest words, by the cosine of their vectors."""

import difflib
import re
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp

from apformer import files, word2vec
from apformer.errors import UserError
from apformer.settings import Settings
from apformer.tasks.words import corpus
from apformer.tokenizers import words

Params = dict[str, jax.Array]  # of word2vec


def neighbours(params: Params, path: Path, queries: list[str], count: int) -> str:
    """Return a table of nearest words.

    Args:
        params: Parameters of word2vec.
        path: Directory of the run.
        queries: Words, or sums of words such as king - man + woman; if empty, the words of ranks 1, 2, 4, 8, ...
        count: Number of neighbours of each.

    Raises:
        UserError: Exit code USAGE; it names a word which the vocabulary lacks.
    """
    lines = files.read_text(path / corpus.FILE).splitlines()
    vocabulary = [line.split("\t")[0] for line in lines]
    sums = re.findall(r"\S+(?: [+-] \S+)*", words.normal(" ".join(" ".join(queries).split())))
    for term in sums:
        _normal(term.split()[::2], vocabulary, "", f"none of the {len(vocabulary):,} words of {path}: ask for")
    return table(nearest(params, vocabulary, sums or _of_doubling_rank(vocabulary), count))


def listed_words(settings: Settings, vocabulary: list[str]) -> list[str]:
    """Return the words whose neighbours an evaluation lists: those of --words, or of ranks 1, 2, 4, 8, ...

    Of progressions, all characters.

    Raises:
        UserError: Exit code USAGE; it names a word which the vocabulary lacks.
    """
    cfg, options = settings.data, settings.options
    if options.words is None:
        return vocabulary if cfg.text is None else _of_doubling_rank(vocabulary)
    fault = f"none of the {len(vocabulary):,} words that occur {cfg.min_count} times or more"
    return _normal(options.words.split(","), vocabulary, "--words ", f"{fault}: lower --min_count, or ask for")


def _normal(queries: list[str], vocabulary: list[str], flag: str, fault: str) -> list[str]:
    """Return words in the normal form of the vocabulary. Raises UserError for the first that it lacks."""
    queries = [words.normal(word.strip()) for word in queries]
    for word in queries:
        if word not in vocabulary:
            raise UserError(f"{flag}{word} is {fault} a word such as {similar(word, vocabulary)}")
    return queries


def similar(word: str, vocabulary: list[str]) -> str:
    """Return a word of similar spelling, or else one of middle rank, since frequent words say little."""
    return [*difflib.get_close_matches(word, vocabulary, n=1, cutoff=0.75), vocabulary[len(vocabulary) // 2]][0]


def nearest(
    params: Params, vocabulary: list[str], queries: list[str], count: int
) -> dict[str, list[tuple[str, float]]]:
    """Return {word or sum of words: [(neighbour, cosine), ...]}, the nearest first.

    Raises:
        UserError: Exit code USAGE, for a sum that is 0.
    """
    near = {}
    for term in queries:
        weights = Counter()
        for sign, word in zip(["+", *term.split()[1::2]], term.split()[::2], strict=True):
            weights[word] += -1 if sign == "-" else 1
        terms, signs = [*weights], [*weights.values()]
        k = min(count, len(vocabulary) - len(terms))
        nearest_K, cosine_K = word2vec.nearest(params, [vocabulary.index(word) for word in terms], signs, k)
        if not jnp.isfinite(cosine_K).all():
            raise UserError(f"the words of {term} cancel out: give others")
        near[term] = [(vocabulary[v], cosine) for v, cosine in zip(nearest_K.tolist(), cosine_K.tolist(), strict=True)]
    return near


def table(near: dict[str, list[tuple[str, float]]]) -> str:
    """Return a line for each word, with its neighbours and their cosines."""
    width = max(map(len, near))
    return "\n".join(f"{word:{width}}  {neighbours}" for word, neighbours in cells(near))


def cells(near: dict[str, list[tuple[str, float]]]) -> list[list[str]]:
    """Return each word, and its neighbours with their cosines, as text."""
    return [[word, ", ".join(f"{v} {cosine:.2f}" for v, cosine in row)] for word, row in near.items()]


def _of_doubling_rank(vocabulary: list[str]) -> list[str]:
    return [vocabulary[2**k - 1] for k in range(len(vocabulary).bit_length())]
