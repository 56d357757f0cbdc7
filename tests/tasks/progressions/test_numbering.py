"""Every progression of at least three terms is visited, once, by tens, in groups of like length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.tasks.progressions import numbering
from apformer.tasks.progressions.generator import Config, render


def by_hand(cfg, most):
    """{(first, difference): terms} of every row of at least three terms, cut to `most`, found by trying all."""
    top, found = 10**cfg.digits - 1, {}
    for difference in range(cfg.min_difference, cfg.max_difference + 1):
        for first in range(top + 1):
            terms = 1
            while terms < most and 0 <= first + terms * difference <= top:
                terms += 1
            if terms >= 3:
                found[first, difference] = terms
    return found


def tens(groups, size):
    """Each ten as (first, difference, terms) of its rows, in batches of `size` tens."""
    for group in groups:
        for start in range(0, len(group), size):
            rows = group.rows(start, size)
            assert all(column.dtype == np.int32 and column.shape == (10 * size,) for column in rows)
            listed = list(zip(*(column.tolist() for column in rows), strict=True))
            yield from (listed[10 * i : 10 * i + 10] for i in range(min(size, len(group) - start)))


def visited(groups, size):
    """(first, difference, terms) of every row of three terms or more."""
    return [row for ten in tens(groups, size) for row in ten if row[2] > 2]


def test_rows_without_a_third_term_are_no_group():
    assert numbering.groups(Config(digits=2, min_difference=60, max_difference=99), []) == []


RANGES = st.tuples(st.integers(-99, 99), st.integers(-99, 99)).map(sorted)


@settings(max_examples=8)
@given(RANGES, st.integers(3, 12), st.data())
def test_every_row_is_visited_once(differences, most, data):
    cfg = Config(digits=2, min_difference=differences[0], max_difference=differences[1])
    splits = data.draw(st.sets(st.integers(3, most - 1)) if most > 3 else st.just(set()))
    found = visited(numbering.groups(cfg, [*sorted(splits), most]), 97)
    expected = by_hand(cfg, most)
    assert len(found) == len(expected)
    assert {(first, difference): terms for first, difference, terms in found} == expected


@settings(max_examples=8)
@given(RANGES)
def test_the_longest_row_of_a_ten_has_the_length_of_its_group(differences):
    cfg = Config(digits=2, min_difference=differences[0], max_difference=differences[1])
    for group in numbering.groups(cfg, [4, 5, 9]):
        longest = {max(terms for _, _, terms in ten) for ten in tens([group], 50)}
        assert longest <= set(range(group.low, group.high + 1))


@settings(max_examples=8)
@given(RANGES)
def test_the_rows_of_a_ten_differ_in_the_last_digit_of_the_second_term_alone(differences):
    cfg = Config(digits=2, min_difference=differences[0], max_difference=differences[1])
    for ten in tens(numbering.groups(cfg, [3, 9]), 50):
        texts = [render(first, difference, 2, 2) for first, difference, _ in ten]
        assert [text[-1] for text in texts] == list("0123456789")
        assert len({text[:-1] for text in texts}) == 1


def test_beyond_the_last_row_it_repeats():
    group = numbering.groups(Config(digits=1), [5])[0]
    rows = list(zip(*(column.tolist() for column in group.rows(len(group) - 1, 3)), strict=True))
    assert rows[:10] == rows[10:20] == rows[20:] and len(set(rows)) == 10


@pytest.mark.parametrize(
    "digits, most, counted",
    [(3, 3, 249_500), (3, 6, 639_667), (4, 3, 4_749_500), (4, 6, 18_246_500), (5, 3, 49_749_500), (5, 6, 198_246_500)],
)
def test_contexts_of_differences_up_to_500(digits, most, counted):
    assert numbering.count_at_least(Config(digits=digits), most).sum() == counted


@settings(max_examples=8)
@given(RANGES, st.integers(3, 12))
def test_contexts_are_counted_as_by_hand(differences, most):
    cfg = Config(digits=2, min_difference=differences[0], max_difference=differences[1])
    lengths = list(by_hand(cfg, most).values())
    expected = [sum(terms >= n for terms in lengths) for n in range(3, most + 1)]
    assert numbering.count_at_least(cfg, most).tolist() == expected
