import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.errors import USAGE, UserError
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

BOTH_WAYS = Config(digits=2, max_terms=7, min_difference=-30, max_difference=30)
jitted_draw = jax.jit(draw, static_argnums=(1, 2, 3))


@partial(jax.jit, static_argnums=(1, 2), static_argnames=("split", "terms"))
def jitted_sample(key, cfg, size, *, split="train", terms=None):
    return encode_rows(draw(key, cfg, size, split), cfg.digits, terms or most_terms(cfg))


def numpy_rows(progressions):
    return jax.tree.map(np.asarray, progressions)


def all_steps(digits):
    """(difference, first) of every upward step first -> first + difference within the digits."""
    top = 10**digits
    difference, first = np.meshgrid(np.arange(1, top), np.arange(top), indexing="ij")
    fits = first + difference < top
    return difference[fits].astype(np.int32), first[fits].astype(np.int32)


# Splits


@pytest.mark.parametrize("digits", [2, 3])
def test_every_step_of_a_line_has_one_split_in_both_directions(digits):
    difference, first = all_steps(digits)
    split = split_of(difference, first)
    np.testing.assert_array_equal(split, split_of(difference, first + difference))  # the step after it
    np.testing.assert_array_equal(split, split_of(-difference, first + difference))  # the same step downwards
    by_line = {}
    for line, side in zip(zip(difference, first % difference, strict=True), split, strict=True):
        assert by_line.setdefault(line, side) == side


def test_no_step_of_a_held_out_progression_occurs_in_training():
    steps = {}
    for split in SPLITS:
        rows = numpy_rows(jitted_draw(jax.random.key(3), BOTH_WAYS, 5000, split))
        steps[split] = {
            frozenset((first + k * difference, first + (k + 1) * difference))
            for first, difference, terms in zip(*(a.tolist() for a in rows), strict=True)
            for k in range(terms - 1)
        }
        assert len(steps[split]) > 50
    assert steps["train"].isdisjoint(steps["validation"] | steps["test"])
    assert steps["validation"].isdisjoint(steps["test"])


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


def test_the_split_is_the_same_on_jax_and_numpy():
    difference, first = all_steps(2)
    on_jax = jax.jit(split_of)(jnp.asarray(difference), jnp.asarray(first))
    assert on_jax.dtype == jnp.int32
    np.testing.assert_array_equal(on_jax, split_of(difference, first))
    np.testing.assert_array_equal(on_jax, split_of(difference.astype(np.int64), first.astype(np.int64)))


def test_has_split_knows_the_empty_splits():
    small = Config(digits=2, min_difference=-3, max_difference=9)
    assert [has_split(small, split) for split in SPLITS] == [True, False, False]
    assert [has_split(Config(), split) for split in SPLITS] == [True, True, True]
    large = Config(digits=9, min_difference=100_000_000, max_difference=200_000_000)
    assert [has_split(large, split) for split in SPLITS] == [True, True, True]
    one_line = Config(digits=2, min_difference=99, max_difference=99)  # 0 -> 99 is all there is
    side = int(split_of(np.array([99]), np.array([0]))[0])
    assert [has_split(one_line, split) for split in SPLITS] == [k == side for k in range(3)]


def test_drawing_from_an_empty_split_is_refused_rather_than_endless():
    with pytest.raises(UserError, match="is in the test split: widen the range") as error:
        draw(jax.random.key(0), Config(digits=2, max_difference=9), 4, "test")
    assert error.value.exit_code == USAGE


# The generator


def generator_table(cfg):
    """Probability of every (first, difference, terms), by the words of the task."""
    top, table = 10**cfg.digits - 1, {}
    differences = range(cfg.min_difference, cfg.max_difference + 1)
    for difference in differences:
        most = cfg.max_terms if difference == 0 else min(cfg.max_terms, 1 + top // abs(difference))
        for terms in range(cfg.min_terms, most + 1):
            firsts = [first for first in range(top + 1) if 0 <= first + (terms - 1) * difference <= top]
            for first in firsts:
                table[first, difference, terms] = 1 / (len(differences) * (most - cfg.min_terms + 1) * len(firsts))
    return table


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
    assert_drawn_from(generator_table(cfg), jitted_draw(jax.random.key(0), cfg, 200_000, None))


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_is_the_generator_given_the_split(split):
    cfg = Config(digits=2, max_terms=4, min_difference=-12, max_difference=-10)
    table = generator_table(cfg)
    first, difference, _ = np.array(list(table)).T
    inside = split_of(difference, first) == SPLITS.index(split)
    total = sum(p for p, keep in zip(table.values(), inside, strict=True) if keep)
    given = {row: p / total for (row, p), keep in zip(table.items(), inside, strict=True) if keep}
    assert_drawn_from(given, jitted_draw(jax.random.key(1), cfg, 40_000, split))


@pytest.mark.parametrize(
    "cfg",
    [BOTH_WAYS, Config(), Config(digits=5), Config(digits=9, min_difference=-(10**9 - 1), max_difference=10**9 - 1)],
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


@pytest.mark.parametrize(
    ("cfg", "terms"),
    [
        (Config(), 100),
        (Config(min_difference=100), 10),
        (Config(min_difference=-500, max_difference=-300), 4),
        (Config(digits=1, min_difference=-3, max_difference=3), 100),
        (Config(digits=2, min_difference=-3, max_difference=-1), 100),
    ],
)
def test_most_terms(cfg, terms):
    assert most_terms(cfg) == terms


# Tokens and weights


def test_literal_batch():
    rows = Progressions(*np.array([[7, 3, 3], [20, -10, 2], [5, 0, 4]], np.int32).T)
    batch = encode_rows(rows, digits=2, terms=3)
    assert (batch.tokens_BT.dtype, batch.weights_BT.dtype) == (jnp.int32, jnp.float32)
    assert batch.tokens_BT.tolist() == [
        [0, 7, 10, 1, 0, 10, 1, 3],
        [2, 0, 10, 1, 0, 0, 0, 0],
        [0, 5, 10, 0, 5, 10, 0, 5],  # cut to three terms
    ]
    assert batch.weights_BT.tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 1, 1],
    ]


def test_nine_digits_do_not_overflow():
    rows = Progressions(*np.array([[999_999_999, -999_999_999, 2], [0, 999_999_999, 2]], np.int32).T)
    batch = encode_rows(rows, digits=9, terms=6)
    assert batch.tokens_BT[0].tolist() == [9] * 9 + [10] + [0] * 9 + [0] * 40
    assert batch.tokens_BT[1].tolist() == [0] * 9 + [10] + [9] * 9 + [0] * 40
    assert batch.weights_BT.sum(1).tolist() == [18, 18]


@pytest.mark.parametrize("cfg", [BOTH_WAYS])
def test_sampled_rows_are_the_rendered_progressions(cfg):
    key = jax.random.key(5)
    rows = numpy_rows(jitted_draw(key, cfg, 64, "test"))
    batch = numpy_rows(jitted_sample(key, cfg, 64, split="test", terms=None))
    assert batch.tokens_BT.shape == (64, most_terms(cfg) * (cfg.digits + 1) - 1)
    for tokens_T, weights_T, *row in zip(*batch, *rows, strict=True):
        text = render(*map(int, row), cfg.digits)
        assert tokenizer.decode(tokens_T[: len(text)]) == text
        assert weights_T.tolist() == [0] + [1] * (len(text) - 1) + [0] * (len(tokens_T) - len(text))
        assert not tokens_T[len(text) :].any()
        terms = [int(term) for term in text.split(" ")]
        assert len(terms) == row[2] and {b - a for a, b in zip(terms, terms[1:], strict=False)} == {int(row[1])}


# Flags


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"digits": 0}, "--digits 0 does not fit: give 1 to 9"),
        ({"digits": 10}, "--digits 10 does not fit"),
        (
            {"digits": 2},
            "--max_difference 500 does not fit: 2 terms of --digits 2 leave room for differences from -99 to 99",
        ),
        (
            {"min_terms": 4},
            "--max_difference 500 does not fit: 4 terms of --digits 3 leave room for differences from -333",
        ),
        ({"min_difference": -1000}, "--min_difference -1000 does not fit: 2 terms of --digits 3"),
        ({"min_difference": 501}, "--min_difference 501 is above --max_difference 500"),
        ({"min_terms": 1}, "--min_terms 1 does not fit: a progression has at least 2"),
        ({"max_terms": 1}, "--max_terms 1 does not fit: give --min_terms 2 up to"),
        ({"max_terms": 10**10}, "--max_terms 10000000000 does not fit"),
        ({"sequences": 0}, "--sequences 0 does not fit: give at least 1"),
    ],
)
def test_flags_out_of_range_are_named_with_what_fits(changes, key):
    with pytest.raises(UserError) as error:
        check(dataclasses.replace(Config(), **changes))
    assert str(error.value).startswith(key)
    assert error.value.exit_code == USAGE


@pytest.mark.parametrize("cfg", [Config(), Config(digits=5), Config(digits=1, max_difference=9), BOTH_WAYS])
def test_flags_that_fit_pass(cfg):
    check(cfg)
