"""Words are split by the stated rule, and a window holds the words around its centre, as far as it reaches."""

import unicodedata
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from apformer.tokenizers import words

B, WINDOW = 4096, 3
OFFSETS = [-3, -2, -1, 1, 2, 3]
sample = jax.jit(partial(words.sample, batch_size=B, window=WINDOW))
subsample = jax.jit(words.subsample)


def corpus(length, per_passage=1000, size=None):
    """Word k at place k; beyond the length stands what must not be seen."""
    size = size or length
    place = np.arange(size, dtype=np.int32)
    return words.Corpus(*map(jnp.asarray, (place, place // per_passage, np.int32(length))))


TEXTS = {
    "'Tis GREEN-eyed; we know't, o’er the 2nd -- lords' Übel.": "tis green eyed we know't o’er the 2nd lords übel",
    "हिन्दी भाषा தமிழ் מְדַבֵּר": "हिन्दी भाषा தமிழ் מְדַבֵּר",
    "fore\u0302t FORÊT e\u0301": "forêt forêt é",  # one normal form
    "new_york ___ می\u200cخواهم 1,000 3.14 U.S. 3.a": "new_york می\u200cخواهم 1,000 3.14 u.s 3 a",
    "我喜歡書 ひらカタカナ": "我 喜 歡 書 ひ ら カタカナ",
    "İstanbul 한국어 a:b": "i\u0307stanbul 한국어 a:b",
}


@pytest.mark.parametrize("text", TEXTS)
def test_words_are_those_of_unicode(text):
    found = words.split(text)[0]
    assert found == unicodedata.normalize("NFC", TEXTS[text]).split()
    pieces = regex.split(r"(?w)\b", words.normal(text), flags=regex.V1)
    assert found == [piece for piece in pieces if regex.search(r"[\p{L}\p{N}]", piece)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_blank_line_ends_a_passage_and_a_line_does_not(end):
    assert words.split(f"one{end}two{end} {end}{end}three") == [["one", "two"], ["three"]]


def test_the_vocabulary_is_by_frequency_then_by_alphabet():
    vocabulary, counts_V = words.count([["b", "c", "a"], ["c", "b", "a", "c", "d"]], 2)
    assert vocabulary == ["c", "a", "b"] and counts_V.tolist() == [3, 2, 2]


def test_rare_words_are_dropped_before_there_are_windows():
    words_T, passage_T, length = words.encode([["a", "x", "b"], ["x"], ["b", "a"]], ["a", "b"])
    assert words_T.tolist() == [0, 1, 1, 0] and passage_T.tolist() == [0, 0, 2, 2] and length == 4
    assert words_T.dtype == passage_T.dtype == length.dtype == jnp.int32


@given(seed=st.integers(0, 1000), length=st.integers(1, 41), per_passage=st.sampled_from([1, 2, 7, 1000]))
def test_a_window_is_of_the_text_around_its_centre(seed, length, per_passage):
    centre_B, context_BW, inside_BW = map(
        np.asarray, sample(jax.random.key(seed), corpus(length, per_passage, size=41))
    )
    assert centre_B.dtype == context_BW.dtype == np.int32 and inside_BW.dtype == bool
    assert centre_B.min() >= 0 and centre_B.max() < length
    place_BW = centre_B[:, None] + OFFSETS
    np.testing.assert_array_equal(context_BW, np.where(inside_BW, place_BW, 0))
    there_BW = (0 <= place_BW) & (place_BW < length) & (place_BW // per_passage == centre_B[:, None] // per_passage)
    assert not (inside_BW & ~there_BW).any()
    assert inside_BW[:, 2:4][there_BW[:, 2:4]].all(), "the nearest word is always of the context"
    for near, far in ((2, 1), (1, 0), (3, 4), (4, 5)):  # what reaches far holds what is nearer
        assert (~inside_BW[:, far] | inside_BW[:, near]).all()


def test_the_reach_is_uniform_and_the_same_to_both_sides(key):
    """A word at distance j is of the context with probability (window - j + 1) / window; six deviations are allowed."""
    centre_B, _, inside_BW = map(np.asarray, sample(key, corpus(1000)))
    inside_BW = inside_BW[(centre_B >= WINDOW) & (centre_B < 1000 - WINDOW)]
    np.testing.assert_array_equal(inside_BW, inside_BW[:, ::-1])
    np.testing.assert_allclose(inside_BW.mean(0), np.array([1, 2, 3, 3, 2, 1]) / 3, atol=6 * 0.5 / B**0.5)


def test_the_keep_probability_by_hand():
    """Shares 1/2, 9/20 and 1/20 of the text, threshold 1/8: sqrt(1/4), sqrt(5/18), and all of the rare one."""
    kept_V = words.keep_probability(np.array([50, 45, 5]), 1 / 8)
    np.testing.assert_allclose(kept_V, [0.5, (5 / 18) ** 0.5, 1], rtol=1e-6)
    assert kept_V.dtype == np.float32


def test_subsampling_drops_frequent_words_and_keeps_the_order(key):
    T, length = 6000, 5000
    text = words.Corpus(jnp.arange(T) % 3, jnp.arange(T) // 7, jnp.asarray(length, jnp.int32))
    kept = subsample(key, text, jnp.asarray([0.0, 0.25, 1.0]))
    n = int(kept.length)
    words_T, passage_T = (np.asarray(column)[:n] for column in kept[:2])
    assert kept.words_T.shape == (T,)
    counts = np.bincount(words_T, minlength=3)
    assert counts[0] == 0 and counts[2] == 1666 and abs(counts[1] - 1667 / 4) < 6 * (1667 * 3 / 16) ** 0.5
    np.testing.assert_array_equal(passage_T[words_T == 2], np.arange(2, length, 3) // 7)
    assert (np.diff(passage_T) >= 0).all()
