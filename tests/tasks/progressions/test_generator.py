"""The generator draws what the task says, and its splits are disjoint in whole lines."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.errors import USAGE
from apformer.tasks.progressions.generator import (
    SPLITS,
    Config,
    Progressions,
    check,
    draw,
    encode_rows,
    has_split,
    most_terms,
    render,
    split_of,
)
from apformer.tokenizers import digits as tokenizer
from tests.helpers.enumeration import draws
from tests.helpers.refusals import refused

BOTH_WAYS = Config(digits=2, max_terms=7, min_difference=-30, max_difference=30)
jitted_draw = jax.jit(draw, static_argnums=(1, 2, 3))


def numpy_rows(progressions):
    return jax.tree.map(np.asarray, progressions)


def all_steps(digits):
    """(difference, first) of every upward step first -> first + difference within the digits."""
    top = 10**digits
    difference, first = np.meshgrid(np.arange(1, top), np.arange(top), indexing="ij")
    fits = first + difference < top
    return difference[fits].astype(np.int32), first[fits].astype(np.int32)


# Splits


def test_every_step_of_a_line_has_one_split_in_both_directions_on_jax_and_numpy():
    difference, first = all_steps(2)
    split = split_of(difference, first)
    on_jax = jax.jit(split_of)(jnp.asarray(difference), jnp.asarray(first))
    assert on_jax.dtype == jnp.int32
    np.testing.assert_array_equal(on_jax, split)
    np.testing.assert_array_equal(split, split_of(difference.astype(np.int64), first.astype(np.int64)))
    np.testing.assert_array_equal(split, split_of(difference, first + difference))  # the step after it
    np.testing.assert_array_equal(split, split_of(-difference, first + difference))  # the same step downwards
    by_line = {}
    for line, side in zip(zip(difference, first % difference, strict=True), split, strict=True):
        assert by_line.setdefault(line, side) == side


def test_lines_are_shared_out_80_10_10_and_short_ones_are_training():
    difference, line = (a.ravel() for a in np.meshgrid(np.arange(501), np.arange(500), indexing="ij"))
    exists = line < np.maximum(difference, 1)
    difference, line = difference[exists], line[exists]
    split = split_of(difference, line)
    assert (split[difference < 10] == 0).all()
    shares = np.bincount(split[difference >= 10]) / (difference >= 10).sum()
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.004)
    # Neither the difference nor the line alone tells the split.
    for group in (difference // 50, line // 50):
        large = difference >= 50
        for value in range(1, 8):
            share = np.bincount(split[large & (group == value)], minlength=3)
            np.testing.assert_allclose(share / share.sum(), [0.8, 0.1, 0.1], atol=0.03)


def test_the_split_never_changes():
    # Literal: a checkpoint tested under another split would be tested on what it was trained on.
    difference = np.array([0, 9, 10, 10, 11, 12, -12, 57, 500, -500], np.int32)
    first = np.array([5, 5, 0, 18, 23, 19, 43, 20, 3, 503], np.int32)
    assert split_of(difference, first).tolist() == [0, 0, 0, 2, 1, 2, 2, 1, 0, 0]


def test_has_split_knows_the_empty_splits():
    small = Config(digits=2, min_difference=-3, max_difference=9)
    assert [has_split(small, split) for split in SPLITS] == [True, False, False]
    large = Config(digits=9, min_difference=100_000_000, max_difference=200_000_000)
    assert [has_split(large, split) for split in SPLITS] == [True, True, True]
    one_line = Config(digits=2, min_difference=99, max_difference=99)  # 0 -> 99 is all there is
    side = int(split_of(np.array([99]), np.array([0]))[0])
    assert [has_split(one_line, split) for split in SPLITS] == [k == side for k in range(3)]


def test_drawing_from_an_empty_split_is_refused_rather_than_endless():
    for split in ("test", "valid"):
        with refused(USAGE, split + " (lines: give a wider range|is none of train, validation, test)"):
            draw(None, Config(digits=2, max_difference=9), 4, split)


# The generator


def assert_drawn_from(table, rows):
    """Chi-square of the counts against the table stays within five standard deviations of its mean."""
    drawn, counts = np.unique(np.stack(numpy_rows(rows), axis=1), axis=0, return_counts=True)
    found = dict(zip(map(tuple, drawn.tolist()), counts.tolist(), strict=True))
    assert found.keys() <= table.keys()
    batch_size = counts.sum()
    chi_square = sum((found.get(row, 0) - batch_size * p) ** 2 / (batch_size * p) for row, p in table.items())
    freedom = len(table) - 1
    assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)


def test_the_generator_draws_what_the_task_says():
    cfg = Config(digits=1, max_terms=4, min_difference=-4, max_difference=3)
    assert_drawn_from(draws(cfg), jitted_draw(jax.random.key(0), cfg, 200_000, None))


def test_a_split_is_the_generator_given_the_split():
    split = "test"
    cfg = Config(digits=2, max_terms=4, min_difference=-12, max_difference=-10)
    table = draws(cfg)
    first, difference, _ = np.array(list(table)).T
    inside = split_of(difference, first) == SPLITS.index(split)
    total = sum(p for p, keep in zip(table.values(), inside, strict=True) if keep)
    given = {row: p / total for (row, p), keep in zip(table.items(), inside, strict=True) if keep}
    assert_drawn_from(given, jitted_draw(jax.random.key(1), cfg, 40_000, split))


@pytest.mark.parametrize(
    "cfg",
    [BOTH_WAYS, Config(), Config(digits=9, min_difference=-(10**9 - 1), max_difference=10**9 - 1)],
)
def test_every_row_is_a_progression_within_its_digits(cfg):
    first_B, difference_B, terms_B = (a.astype(np.int64) for a in numpy_rows(jitted_draw(jax.random.key(2), cfg, 4096)))
    last_B = first_B + (terms_B - 1) * difference_B
    top = 10**cfg.digits - 1
    assert (np.minimum(first_B, last_B) >= 0).all() and (np.maximum(first_B, last_B) <= top).all()
    assert ((cfg.min_difference <= difference_B) & (difference_B <= cfg.max_difference)).all()
    assert ((cfg.min_terms <= terms_B) & (terms_B <= cfg.max_terms)).all()
    assert (terms_B <= most_terms(cfg)).all()


def test_nine_digits_are_drawn_evenly():
    # jax.random.randint puts 34 % of its draws into the lowest 29.5 % of 0 .. 10^9 - 1.
    cfg = Config(digits=9, max_terms=2, min_difference=0, max_difference=0)
    first_B = numpy_rows(jitted_draw(jax.random.key(4), cfg, 100_000)).first_B
    shares = np.bincount(first_B // 10**8, minlength=10) / first_B.size
    np.testing.assert_allclose(shares, 0.1, atol=0.005)


# Tokens and weights


def test_nine_digits_do_not_overflow():
    rows = Progressions(*np.array([[999_999_999, -999_999_999, 2], [0, 999_999_999, 2]], np.int32).T)
    batch = encode_rows(rows, digits=9, terms=6)
    assert batch.tokens_BT[0].tolist() == [9] * 9 + [10] + [0] * 9 + [0] * 40
    assert batch.tokens_BT[1].tolist() == [0] * 9 + [10] + [9] * 9 + [0] * 40
    assert batch.weights_BT.sum(1).tolist() == [18, 18]


def test_sampled_rows_are_the_rendered_progressions():
    cfg, terms = BOTH_WAYS, most_terms(BOTH_WAYS)
    rows = numpy_rows(jitted_draw(jax.random.key(5), cfg, 5000, "test"))
    batch = numpy_rows(encode_rows(Progressions(*(column[:64] for column in rows)), cfg.digits, terms))
    assert batch.tokens_BT.shape == (64, terms * (cfg.digits + 1) - 1)
    for tokens_T, weights_T, *row in zip(*batch, *(column[:64] for column in rows), strict=True):
        text = render(*map(int, row), cfg.digits)
        assert tokenizer.decode(tokens_T[: len(text)]) == text
        assert weights_T.tolist() == [0] + [1] * (len(text) - 1) + [0] * (len(tokens_T) - len(text))
        assert not tokens_T[len(text) :].any()
        terms_N = [int(term) for term in text.split(" ")]
        assert len(terms_N) == row[2] and {*np.diff(terms_N).tolist()} == {int(row[1])}


# Flags


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"digits": 0}, "--digits 0 is out of range: give 1 to 9"),
        ({"digits": 2}, "--max_difference 500 is out of range: give -99 to 99, for which 2 terms of --digits 2"),
        ({"min_difference": -1000}, "--min_difference -1000 is out of range: give -999 to 999"),
        ({"min_difference": 501}, "--min_difference 501 is out of range: give at most 500"),
        ({"min_terms": 1}, "--min_terms 1 is out of range: give at least 2"),
        ({"max_terms": 1}, "--max_terms 1 is out of range: give --min_terms 2 to 1000000000"),
    ],
)
def test_flags_out_of_range_are_named_with_what_fits(changes, key):
    with refused(USAGE, f"^{key}"):
        check(replace(Config(), **changes))
