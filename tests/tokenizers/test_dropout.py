"""Byte pairs with dropout cut a text in other ways each time, none of which changes it."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer.tokenizers import dropout
from apformer.tokenizers.text import train_byte_pairs
from tests.helpers.small_texts import any_text, few_letters

pytest.importorskip("tokenizers", reason='the library comes with the text extra: pip install -e ".[text]"')

TEXT = "the cat sat on the mat, the rat ran and the hat sang\n" * 3


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_pairs(TEXT, 300)


def rows(tokenizer, texts, share, seed=0, times=3):
    return [[row.tolist() for row in row_of] for row_of in islice(dropout.cuts(tokenizer, texts, share, seed), times)]


@given(text=any_text | few_letters, seed=st.integers(0, 9))
def test_without_dropout_the_tokens_are_those_of_encode(tokenizer, text, seed):
    plain = [tokenizer.encode(text).tolist()]
    assert rows(tokenizer, [text], 0.0, seed, 2) == [plain, plain]


@given(text=any_text | few_letters, share=st.floats(0, 1), seed=st.integers(0, 9))
def test_every_cut_is_one_of_the_text(tokenizer, text, share, seed):
    for (row,) in rows(tokenizer, [text], share, seed):
        assert tokenizer.decode(row) == text
        assert len(tokenizer.encode(text)) <= len(row) <= len(text.encode("utf-8"))


def test_with_all_merges_left_out_there_are_bytes(tokenizer):
    (row,), *_ = rows(tokenizer, [TEXT], 1.0)
    assert len(row) == len(TEXT) and max(row) < 256


def test_a_seed_decides_the_cuts_and_each_is_another(tokenizer):
    texts = [TEXT, "a cat", ""]
    first = rows(tokenizer, texts, 0.3)
    assert first == rows(tokenizer, texts, 0.3) != rows(tokenizer, texts, 0.3, seed=1)
    assert first[0][0] != first[1][0] != first[2][0] and first[0][2] == []


def test_a_merge_is_left_out_as_often_as_asked():
    """a b is the only merge of 'ab'. Of 4,000 draws with probability 0.3, 1,200 +- 29 leave it out."""
    rng, rank = np.random.default_rng(0), {(1, 2): (0, 3)}
    found = [tuple(dropout.merged([1, 2], rank, 0.3, rng)) for _ in range(4000)]
    assert {*found} == {(1, 2), (3,)}
    assert abs(found.count((1, 2)) - 1200) < 5 * 29


def test_the_earliest_merge_that_is_kept_goes_first():
    """a b c, where b c is merged before a b: a bc with probability 1 - p, else ab c by 1 - p of the rest."""
    rng, rank = np.random.default_rng(0), {(2, 3): (0, 4), (1, 2): (1, 5)}
    found = [tuple(dropout.merged([1, 2, 3], rank, 0.5, rng)) for _ in range(4000)]
    counts = [found.count(row) for row in ((1, 4), (5, 3), (1, 2, 3))]
    np.testing.assert_allclose(counts, [2000, 1000, 1000], atol=5 * 32)
