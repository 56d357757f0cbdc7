"""Words of a text: its first part for training, its last part for validation.

    text = [ training part | validation part ]        vocabulary and counts are of the whole text

Without a text, progressions are generated: their characters are the words, and each progression is a passage.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from apformer.errors import DATA, UserError
from apformer.files import FilePath
from apformer.flags import require, require_whole
from apformer.tasks.progressions import generator, text_file
from apformer.tasks.progressions import recipes as progressions
from apformer.tasks.text import corpus as texts
from apformer.tokenizers import words

FILE = "vocabulary.tsv"


@dataclass(frozen=True)
class Config:
    """Text of word vectors, and the choice of its words.

    Attributes:
        text: Text in UTF-8, a file or a folder of them, with blank lines between passages. The default is progressions.
        digits: Number of digits of a term of the progressions, without --text.
        window: Most words on either side of the centre. Each window draws its reach from 1 up to this.
        min_count: Fewest times that a word occurs. Rarer words are dropped.
        subsample: Share of the text above which a word is thinned out in training. With 1, no word is.
        validation_share: Share of the text, at its end, that is kept for validation.
    """

    text: FilePath | None = None
    digits: int = 3
    window: int = 10
    min_count: int = 10
    subsample: float = 3e-4
    validation_share: float = 0.1


@dataclass(frozen=True)
class Options:
    """Options of the words that are shown when training ends.

    Attributes:
        words: Words whose neighbours are shown, separated by commas. The default is those of frequency ranks 1, 2, 4,
            8, ...
        neighbours: Number of neighbours shown for each of these words.
    """

    words: str | None = None
    neighbours: int = 8


class Rows(NamedTuple):
    """Text as indices into a vocabulary."""

    vocabulary: list[str]
    counts_V: np.ndarray
    train: words.Corpus
    validation: words.Corpus


def check(cfg: Config) -> None:
    """Raise UserError (exit USAGE) for a flag that is out of range."""
    for flag in ("window", "min_count"):
        require_whole(flag, cfg)
    require("subsample", 0 < cfg.subsample <= 1, cfg, "more than 0 and at most 1")
    require("validation_share", 0 < cfg.validation_share < 1, cfg, "more than 0 and less than 1")
    if cfg.text is None:
        generator.check(progressions.exact(cfg.digits).data)


def read(cfg: Config) -> Rows:
    """Return the Rows of a text, or of generated progressions.

    Raises:
        UserError: Exit code DATA, if the file cannot be read or has too few words.
    """
    passages = words.split(texts.read(cfg.text)) if cfg.text is not None else _progressions(cfg.digits)
    vocabulary, counts_V = words.count(passages, cfg.min_count)
    encoded = words.encode(passages, vocabulary)
    if len(vocabulary) < 3 or not _has_pairs(encoded):
        fault = f"{source(cfg)} has {len(vocabulary)} words that occur {cfg.min_count} times or more"
        raise UserError(f"{fault}, too few to have neighbours: give a longer text, or lower --min_count", DATA)
    at = int(len(encoded.words_T) * (1 - cfg.validation_share))
    parts = []
    for name, part in (("training", slice(at)), ("validation", slice(at, None))):
        words_T = encoded.words_T[part]
        length = jax.numpy.asarray(len(words_T), "int32")
        parts.append(words.Corpus(words_T, encoded.passage_T[part], length))
        if not _has_pairs(parts[-1]):
            fault = f"the {name} part of {source(cfg)} has no two words of one passage"
            raise UserError(f"{fault}: give a longer text, or another --validation_share", DATA)
    return Rows(vocabulary, counts_V, *parts)


def files(rows: Rows) -> dict[str, str]:
    """Return the vocabulary file: a word and its count on each line, in the order of the vectors (frequent first)."""
    return {FILE: "".join(f"{word}\t{n}\n" for word, n in zip(rows.vocabulary, rows.counts_V, strict=True))}


def _progressions(digits: int) -> list[list[str]]:
    """Return the characters of 10,000 progressions, the same for every seed of training."""
    cfg = progressions.exact(digits).data
    text = text_file.to_text(generator.draw(jax.random.key(0), cfg, 10_000), digits)
    return [[*row] for row in text.replace(" ", "␣").splitlines()]


def source(cfg: Config) -> str:
    """Return the name of the text."""
    return cfg.text or f"progressions of {cfg.digits} digits"


def _has_pairs(corpus: words.Corpus) -> bool:
    """Return whether two neighbouring words are of one passage."""
    return bool((corpus.passage_T[1:] == corpus.passage_T[:-1]).any())
