"""Buckets: no other widths cost less, and batches hold every row once, in few shapes."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apformer.decoding import buckets

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def padded(widths, lengths):
    return sum(next(width for width in widths if length <= width) for length in lengths)


def cheapest(lengths, width_cost, most):
    """The least cost of all sets of at most `most` widths, by trying them all."""
    others = [width for width in sorted({*lengths}) if width < max(lengths)]
    choices = itertools.chain(*(itertools.combinations(others, n) for n in range(min(most, len(others) + 1))))
    return min(padded((*some, max(lengths)), lengths) + width_cost * (len(some) + 1) for some in choices)


@given(lengths=lengths, width_cost=st.integers(0, 30), most=st.one_of(st.none(), st.integers(1, 4)))
def test_no_other_widths_cost_less(lengths, width_cost, most):
    widths = buckets.widths(*np.unique(lengths, return_counts=True), width_cost=width_cost, most=most)
    assert list(widths) == sorted({*widths}) and {*widths} <= {*lengths} and len(widths) <= (most or 9)
    assert padded(widths, lengths) + width_cost * len(widths) == cheapest(lengths, width_cost, most or 9)


@given(width_N=lengths, batch_tokens=st.integers(1, 60))
def test_batches_hold_every_row_once_and_those_of_a_width_are_of_one_size(width_N, batch_tokens):
    width_N, seen, sizes = np.array(width_N), [], {}
    for rows, row_B, width in buckets.batches(width_N, batch_tokens):
        assert (width_N[row_B] == width).all() and row_B[: len(rows)].tolist() == rows.tolist() and len(rows)
        assert len(row_B) == 1 or len(row_B) * width <= batch_tokens
        assert sizes.setdefault(width, len(row_B)) == len(row_B)
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(width_N))) and list(sizes) == sorted(sizes)


def test_a_batch_is_no_larger_than_its_rows_need():
    """Seven rows where five fit are four and three; one row stands alone."""
    found = [(rows.tolist(), row_B.tolist()) for rows, row_B, _ in buckets.batches(np.full(7, 4), 20)]
    assert found == [([0, 1, 2, 3], [0, 1, 2, 3]), ([4, 5, 6], [4, 5, 6, 4])]
    ((rows, row_B, width),) = buckets.batches(np.array([1000]), 20)
    assert (rows.tolist(), row_B.tolist(), width) == ([0], [0], 1000)
