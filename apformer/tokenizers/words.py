"""The words of a text as one array of numbers, and windows around them, drawn on the device.

Words end where Unicode's rules end them (https://unicode.org/reports/tr29): vowel signs, accents, underscores and
joiners belong to a word, so do an apostrophe or a point between letters and the marks of a number, and each ideograph
is a word of its own. Thai and its like, which need a dictionary, stay whole. Text and question are in lower case, and
in normal form C.

Lines up to a blank one are a passage, which no window leaves. Words that are rare are dropped before there are windows,
and so are, anew each time, some of the frequent ones (Mikolov et al. 2013b, equation 5): a word that is a share f of
the text stays with probability

    min(1, sqrt(threshold / f))

As in the authors' program, windows reach beyond what was dropped.
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
MIDDLE = r"['’.:·](?=[^\W\d_])|(?<=\d)['’.,;](?=\d)"  # of a word, and of a number
BLANK = re.compile(r"\n\s*\n")


class Corpus(NamedTuple):
    """Words of a text, and where they stand."""

    words_T: Array  # int32
    passage_T: Array  # int32, the number of the passage that the word stands in
    length: Array  # int32; what stands beyond is not of the text


class Windows(NamedTuple):
    """Words with those around them."""

    centre_B: Array  # int32
    context_BW: Array  # int32, the words at -window .. -1 and 1 .. window from the centre
    inside_BW: Array  # bool; which of them are of the context


def normal(text: str) -> str:
    """Return a text in lower case, and in normal form C."""
    return unicodedata.normalize("NFC", text.lower())


def split(text: str) -> list[list[str]]:
    """Return the words of every passage of a text."""
    text = normal(text)
    marks = "".join(c for c in {*text} if unicodedata.category(c).startswith("M")) + "\u200c\u200d\u00ad"
    letter = f"(?![{IDEOGRAPHS}])\\w[{marks}]*"
    word = re.compile(f"(?:{letter})+(?:(?:{MIDDLE})(?:{letter})+)*|[{IDEOGRAPHS}][{marks}]*")
    return [[found for found in word.findall(passage) if found.strip("_")] for passage in BLANK.split(text)]


def count(passages: list[list[str]], min_count: int) -> tuple[list[str], np.ndarray]:
    """Every word that occurs at least min_count times, the most frequent first, and how often: counts_V, int64."""
    counted = Counter(word for passage in passages for word in passage)
    kept = sorted(((word, n) for word, n in counted.items() if n >= min_count), key=lambda pair: (-pair[1], pair[0]))
    return [word for word, _ in kept], np.array([n for _, n in kept], np.int64)


def encode(passages: list[list[str]], vocabulary: list[str]) -> Corpus:
    """The words of the vocabulary in the order of the text; the others are dropped."""
    number = {word: k for k, word in enumerate(vocabulary)}
    found = [(number[word], k) for k, passage in enumerate(passages) for word in passage if word in number]
    words_T, passage_T = np.array(found, np.int32).reshape(-1, 2).T
    return Corpus(jnp.asarray(words_T), jnp.asarray(passage_T), jnp.asarray(len(words_T), jnp.int32))


def kept_share(counts_V: np.ndarray | Array, threshold: float) -> Array:
    """The probability that a word stays, min(1, sqrt(threshold / f)): (V,), float32."""
    counts_V = jnp.asarray(counts_V, jnp.float32)
    return jnp.minimum(1.0, jnp.sqrt(threshold * counts_V.sum() / counts_V))


def subsample(key: Array, corpus: Corpus, kept_share_V: Array) -> Corpus:
    """The corpus without the words that chance drops, in arrays as long as before.

    Pure; every occurrence of word w stays with probability kept_share_V[w], independently.
    """
    T = len(corpus.words_T)
    stays_T = jax.random.uniform(key, (T,)) < kept_share_V[corpus.words_T]
    stays_T &= jnp.arange(T, dtype=jnp.int32) < corpus.length
    place_T = jnp.where(stays_T, jnp.cumsum(stays_T, dtype=jnp.int32) - 1, T)  # T is nowhere
    words_T, passage_T = (jnp.zeros(T, jnp.int32).at[place_T].set(a, mode="drop") for a in corpus[:2])
    return Corpus(words_T, passage_T, stays_T.sum(dtype=jnp.int32))


def sample(key: Array, corpus: Corpus, batch_size: int, window: int) -> Windows:
    """Windows around words drawn uniformly, each reaching r words to either side, r uniform from 1 .. window.

    Pure; batch_size and window are static under jit. A context stays in its centre's passage, and may be empty.
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
