"""Encode the words of a text as an array of numbers, and sample windows around them on the device.

Words are split by Unicode's rules (https://unicode.org/reports/tr29): vowel signs, accents, underscores and joiners
belong to a word, and so do an apostrophe or a point between letters and the marks within a number. Each ideograph is a
word. Scripts such as Thai, which need a dictionary, are not split. Texts and queries are in lower case and in normal
form C.

A passage ends at a blank line, and no window crosses its end. Rare words are dropped before windows are sampled. In
each sampling some occurrences of frequent words are dropped too (Mikolov et al. 2013b, equation 5): a word that is a
share f of the text is kept with probability

    min(1, sqrt(threshold / f))

As in the authors' program, windows are taken after words are dropped, so they reach farther in the text.
"""

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

IDEOGRAPHS = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # and Hiragana
MIDDLE = r"(?<![\d_])['’.:·](?=[^\W\d_])|(?<=\d)['’.,;](?=\d)"  # marks within a word, and within a number
BLANK = re.compile(r"\n\s*\n")


class Corpus(NamedTuple):
    """The words of a text and their passages."""

    words_T: Array  # int32
    passage_T: Array  # int32, number of the passage of the word
    length: Array  # int32, number of words; the rest is padding


class Windows(NamedTuple):
    """Words and their contexts."""

    centre_B: Array  # int32
    context_BW: Array  # int32, the words at -window .. -1 and 1 .. window from the centre
    inside_BW: Array  # bool, whether the word belongs to the context


def normal(text: str) -> str:
    """Return a text in lower case, and in normal form C."""
    return unicodedata.normalize("NFC", text.lower())


def split(text: str) -> list[list[str]]:
    """Return the words of every passage of a text."""
    text = normal(text)
    marks = "".join(c for c in {*text} if unicodedata.category(c).startswith("M")) + "\u200c\u200d\u00ad"
    letter = f"(?![{IDEOGRAPHS}])\\w[{marks}]*"
    word = re.compile(f"(?:{letter})+(?:(?:{MIDDLE})(?:{letter})+)*|[{IDEOGRAPHS}][{marks}]*")
    return [[match for match in word.findall(passage) if match.strip("_")] for passage in BLANK.split(text)]


def count(passages: list[list[str]], min_count: int) -> tuple[list[str], np.ndarray]:
    """Return the words that occur at least min_count times, the most frequent first, and their counts_V, int64."""
    counter = Counter(word for passage in passages for word in passage)
    words = [word for word in sorted(counter, key=lambda word: (-counter[word], word)) if counter[word] >= min_count]
    return words, np.array([counter[word] for word in words], np.int64)


def encode(passages: list[list[str]], vocabulary: list[str]) -> Corpus:
    """Return the corpus of a text; words outside the vocabulary are dropped."""
    number = {word: k for k, word in enumerate(vocabulary)}
    pairs = [(number[word], k) for k, passage in enumerate(passages) for word in passage if word in number]
    words_T, passage_T = np.array(pairs, np.int32).reshape(-1, 2).T
    return Corpus(jnp.asarray(words_T), jnp.asarray(passage_T), jnp.asarray(len(words_T), jnp.int32))


def keep_probability(counts_V: np.ndarray | Array, threshold: float) -> Array:
    """Return the probability that an occurrence of each word is kept, min(1, sqrt(threshold / f)): (V,), float32."""
    counts_V = jnp.asarray(counts_V, jnp.float32)
    return jnp.minimum(1.0, jnp.sqrt(threshold * counts_V.sum() / counts_V))


def subsample(key: Array, corpus: Corpus, keep_V: Array) -> Corpus:
    """Drop random words of a corpus; the arrays keep their length.

    Pure; every occurrence of word w is kept with probability keep_V[w], independently.
    """
    T = len(corpus.words_T)
    keep_T = jax.random.uniform(key, (T,)) < keep_V[corpus.words_T]
    keep_T &= jnp.arange(T, dtype=jnp.int32) < corpus.length
    place_T = jnp.where(keep_T, jnp.cumsum(keep_T, dtype=jnp.int32) - 1, T)  # T is out of range, and dropped
    words_T, passage_T = (jnp.zeros(T, jnp.int32).at[place_T].set(a, mode="drop") for a in corpus[:2])
    return Corpus(words_T, passage_T, keep_T.sum(dtype=jnp.int32))


def sample(key: Array, corpus: Corpus, batch_size: int, window: int) -> Windows:
    """Sample windows around uniformly random words, with r words on either side, r uniform in 1 .. window.

    Pure; batch_size and window are static under jit. A context does not leave the passage of its centre; it may be
    empty.
    """
    centre_key, reach_key = jax.random.split(key)
    centre_B1 = jax.random.randint(centre_key, (batch_size, 1), 0, corpus.length, jnp.int32)
    reach_B1 = jax.random.randint(reach_key, (batch_size, 1), 1, window + 1, jnp.int32)
    offset_1W = jnp.asarray([j for j in range(-window, window + 1) if j], jnp.int32)[None]
    place_BW = centre_B1 + offset_1W
    inside_BW = (abs(offset_1W) <= reach_B1) & (0 <= place_BW) & (place_BW < corpus.length)
    place_BW = jnp.where(inside_BW, place_BW, 0)
    inside_BW &= corpus.passage_T[place_BW] == corpus.passage_T[centre_B1]
    return Windows(corpus.words_T[centre_B1[:, 0]], jnp.where(inside_BW, corpus.words_T[place_BW], 0), inside_BW)
