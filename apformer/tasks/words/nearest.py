"""Words that are near others, by the cosine of their vectors."""

import difflib
import re
from pathlib import Path

import jax

from apformer import files, word2vec
from apformer.errors import UserError
from apformer.settings import Settings
from apformer.tasks.words import corpus
from apformer.tokenizers import words

Params = dict[str, jax.Array]  # of word2vec


def neighbours(params: Params, path: Path, given: list[str], count: int) -> str:
    """Return a table of the words nearest to others, for the run at `path`; without `given`, to words of doubling rank.

    given: words, with + or - between those that are added: king - man + woman.

    Raises:
        UserError: Exit code USAGE; it names a word which the vocabulary lacks.
    """
    lines = files.read_text(path / corpus.FILE).splitlines()
    vocabulary = [line.split("\t")[0] for line in lines]
    sums = re.findall(r"\S+(?: [+-] \S+)*", words.normal(" ".join(given)))
    for term in sums:
        _known(term.split()[::2], vocabulary, "", f"none of the {len(vocabulary):,} words of {path}: ask for")
    return table(nearest(params, vocabulary, sums or _of_doubling_rank(vocabulary), count))


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
            raise UserError(f"{flag}{word} is {fault} a word such as {similar(word, vocabulary)}")
    return given


def similar(word: str, vocabulary: list[str]) -> str:
    """Return a word of similar spelling, or else one in the middle: the most frequent words say little."""
    return [*difflib.get_close_matches(word, vocabulary, n=1, cutoff=0.75), vocabulary[len(vocabulary) // 2]][0]


def nearest(params: Params, vocabulary: list[str], given: list[str], count: int) -> dict[str, list[tuple[str, float]]]:
    """Return {word or sum of words: [(neighbour, cosine), ...]}, the nearest first."""
    near = {}
    for term in given:
        terms, signs = term.split()[::2], [1, *(-1 if sign == "-" else 1 for sign in term.split()[1::2])]
        k = min(count, len(vocabulary) - len({*terms}))
        nearest_K, cosine_K = word2vec.nearest(params, [vocabulary.index(word) for word in terms], signs, k)
        near[term] = [(vocabulary[v], cosine) for v, cosine in zip(nearest_K.tolist(), cosine_K.tolist(), strict=True)]
    return near


def table(near: dict[str, list[tuple[str, float]]]) -> str:
    """Return a line for each word, with its neighbours and their cosines."""
    width = max(map(len, near))
    lines = (f"{word:{width}}  {', '.join(f'{v} {c:.2f}' for v, c in row)}" for word, row in near.items())
    return "\n".join(lines)


def _of_doubling_rank(vocabulary: list[str]) -> list[str]:
    return [vocabulary[2**k - 1] for k in range(len(vocabulary).bit_length())]
