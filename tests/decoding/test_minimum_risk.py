"""The choice by minimum Bayes risk: by hand, and by the properties of an overlap."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer.decoding import minimum_risk

TEXTS = st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=5)


def grams(text):
    return [minimum_risk.ngrams(text, n) for n in minimum_risk.ORDERS]


def test_the_text_that_others_nearly_say_is_chosen():
    """The first is the most likely, and shares nothing with the others."""
    texts = ["a b c d".split(), "e f g h".split(), "e f g i".split()]
    assert minimum_risk.best(texts, [0.0, -0.02, -0.02]) == 1
    assert minimum_risk.best(texts, [0.0, -0.02, -0.01]) == 2
    assert minimum_risk.best(texts, [0.0, -2.0, -2.0]) == 0


def test_a_text_alone_and_texts_that_were_not_worth_finishing():
    assert minimum_risk.best([[1, 2]], [-3.0]) == 0
    assert minimum_risk.best([[1, 2], [3], [3]], [-3.0, float("-inf"), float("-inf")]) == 0
    assert minimum_risk.best([[1, 2], [3]], [float("nan"), float("nan")]) == 0


def test_short_texts_do_not_agree_for_being_short():
    assert minimum_risk.best([[1, 2, 3, 4], [1, 2, 3, 5], [6], [7]], [0.0] * 4) == 0
    assert minimum_risk.overlap(grams([5]), grams([6])) == 0
    assert minimum_risk.overlap(grams([]), grams([])) == 1


def test_overlap_by_hand():
    """Words 2 * 3 / (4 + 5), pairs 2 * 1 / (3 + 4), and no n-gram of three or four that both have."""
    first, second = "a b a c".split(), "a b d a e".split()
    assert minimum_risk.overlap(grams(first), grams(second)) == pytest.approx((6 / 9 + 2 / 7) / 4)


@given(TEXTS)
def test_an_overlap_is_a_share_that_is_whole_for_equal_texts_alone(texts):
    for first in texts:
        for second in texts:
            found = minimum_risk.overlap(grams(first), grams(second))
            assert 0 <= found <= 1 and found == minimum_risk.overlap(grams(second), grams(first))
            if len(first) <= 4:  # the n-grams of longer texts need not say their order
                assert (found == 1) == (first == second)


@given(TEXTS, st.randoms(use_true_random=False))
def test_the_choice_agrees_most_in_any_order(texts, random):
    texts = sorted({tuple(text) for text in texts})
    scores = [-0.1 * n for n in range(len(texts))]
    shuffled = list(zip(texts, scores, strict=True))
    random.shuffle(shuffled)
    again = [*zip(*shuffled, strict=True)]

    def agreement(text):
        with_others = [minimum_risk.overlap(grams(text), grams(other)) for other in texts]
        return sum(
            exp(score / minimum_risk.TEMPERATURE) * found for score, found in zip(scores, with_others, strict=True)
        )

    most = max(agreement(text) for text in texts)
    assert agreement(again[0][minimum_risk.best(*again)]) == pytest.approx(most)
