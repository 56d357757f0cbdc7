"""Every progression of at least three terms is visited, once, in groups of like length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer.tasks.progressions import contexts
from apformer.tasks.progressions.generator import Config


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


def visited(groups, size):
    """(first, difference, terms) of every row, in batches of `size` rows."""
    for group in groups:
        for start in range(0, len(group), size):
            rows = group.rows(start, size)
            assert all(column.dtype == np.int32 and column.shape == (size,) for column in rows)
            yield from list(zip(*(column.tolist() for column in rows), strict=True))[: len(group) - start]


RANGES = st.tuples(st.integers(-99, 99), st.integers(-99, 99)).map(sorted)


@settings(deadline=None, max_examples=25)
@given(RANGES, st.integers(3, 12), st.data())
def test_every_row_is_visited_once(differences, most, data):
    cfg = Config(digits=2, min_difference=differences[0], max_difference=differences[1])
    splits = data.draw(st.sets(st.integers(3, most - 1)) if most > 3 else st.just(set()))
    found = list(visited(contexts.groups(cfg, [*sorted(splits), most]), 97))
    expected = by_hand(cfg, most)
    assert len(found) == len(expected)
    assert {(first, difference): terms for first, difference, terms in found} == expected


def test_rows_of_a_group_have_its_lengths():
    cfg = Config(digits=2, max_difference=40)
    for group in contexts.groups(cfg, [4, 5, 9]):
        lengths = {terms for _, _, terms in visited([group], 50)}
        assert lengths <= set(range(group.low, group.high + 1))


def test_beyond_the_last_row_it_repeats():
    group = contexts.groups(Config(digits=1), [5])[0]
    rows = group.rows(len(group) - 1, 3)
    assert len(set(zip(*(column.tolist() for column in rows), strict=True))) == 1


@pytest.mark.parametrize(
    "digits, most, counted",
    [(3, 3, 249_500), (3, 6, 639_667), (4, 3, 4_749_500), (4, 6, 18_246_500), (5, 3, 49_749_500), (5, 6, 198_246_500)],
)
def test_contexts_of_differences_up_to_500(digits, most, counted):
    assert contexts.count_at_least(Config(digits=digits), most).sum() == counted


@settings(deadline=None, max_examples=25)
@given(RANGES, st.integers(3, 12))
def test_contexts_are_counted_as_by_hand(differences, most):
    cfg = Config(digits=2, min_difference=differences[0], max_difference=differences[1])
    lengths = list(by_hand(cfg, most).values())
    expected = [sum(terms >= n for terms in lengths) for n in range(3, most + 1)]
    assert contexts.count_at_least(cfg, most).tolist() == expected
