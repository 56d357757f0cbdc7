"""Stretches of rows: from the beginning, from anywhere, and from where a term is close to a round number."""

import jax
import numpy as np
import pytest

from apformer.tasks.progressions import crops, first_two_terms, generator
from apformer.tasks.progressions.generator import Config, Progressions, split_of
from apformer.tokenizers import digits as tokenizer

BOTH_WAYS = Config(digits=2, min_difference=-30, max_difference=30)

draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))
encode_rows = jax.jit(generator.encode_rows, static_argnums=(1, 2))
beginning = jax.jit(crops.beginning, static_argnums=(1, 2))
anywhere = jax.jit(crops.anywhere, static_argnums=(2, 3))
near_round = jax.jit(crops.near_round, static_argnums=(1, 2, 3))
unseen_digits = jax.jit(first_two_terms.unseen_digits, static_argnums=1)


@pytest.fixture
def key():
    return jax.random.key(5)


def siblings(first, second, cfg):
    """Second terms with other last digits: those the generator draws, and those of them on training lines."""
    drawn = range(second // 10 * 10, second // 10 * 10 + 10)
    drawn = [s for s in drawn if cfg.min_difference <= s - first <= cfg.max_difference]
    return drawn, [s for s in drawn if split_of(np.array([s - first]), np.array([first]))[0] == 0]


def test_the_beginning_is_the_row_cut_and_weighs_for_the_held_out_lines_beside_it(key):
    rows = draw(key, BOTH_WAYS, 64, "train")
    cropped, cut = beginning(rows, BOTH_WAYS, 4), encode_rows(rows, 2, 4)
    np.testing.assert_array_equal(cropped.tokens_BT, cut.tokens_BT)
    weights_BT = np.array(cut.weights_BT)
    for weights_T, first, difference in zip(weights_BT, *map(np.asarray, rows[:2]), strict=True):
        drawn, train = siblings(first, first + difference, BOTH_WAYS)
        weights_T[:5] *= np.float32(len(drawn) / len(train))
    assert len(np.unique(weights_BT)) > 4
    np.testing.assert_allclose(cropped.weights_BT, weights_BT, rtol=1e-6)


def test_a_row_of_a_file_may_be_one_that_the_generator_never_draws():
    rows = Progressions(*(np.array([value], np.int32) for value in (10, 37, 3)))
    batch = beginning(rows, Config(digits=2, max_difference=20), 3)
    np.testing.assert_array_equal(batch.weights_BT, encode_rows(rows, 2, 3).weights_BT)
    assert not np.asarray(unseen_digits(batch.tokens_BT, Config(digits=2, max_difference=20))).any()


def test_a_stretch_from_anywhere_has_two_first_terms_that_weigh_nothing():
    rows = Progressions(*(np.full(64, value, np.int32) for value in (3, 10, 6)))
    tokens_BT, weights_BT = map(np.asarray, anywhere(jax.random.key(11), rows, 2, 3))
    expected = {"03 13 23", "13 23 33", "23 33 43", "33 43 53"}
    assert {tokenizer.decode(tokens_T) for tokens_T in tokens_BT} == expected
    np.testing.assert_array_equal(weights_BT, np.tile(np.float32([0, 0, 0, 0, 0, 1, 1, 1]), (64, 1)))


def test_a_stretch_of_a_short_row_ends_where_the_row_ends():
    rows = Progressions(*(np.full(8, value, np.int32) for value in (3, 10, 3)))
    tokens_BT, weights_BT = map(np.asarray, anywhere(jax.random.key(12), rows, 2, 4))
    assert {tokenizer.decode(tokens_T[:8]) for tokens_T in tokens_BT} == {"03 13 23"}
    np.testing.assert_array_equal(weights_BT[:, 8:], 0)


@pytest.mark.parametrize("cfg", [Config(digits=3), Config(digits=3, min_difference=-40, max_difference=40)])
def test_rows_near_round_numbers_are_stretches_of_training_lines(cfg, key):
    terms, characters = 5, cfg.digits + 1
    tokens_BT, weights_BT = map(np.asarray, near_round(key, cfg, 512, terms))
    used_B = weights_BT.any(axis=1)
    assert 0.25 < used_B.mean() < 0.9
    assert not weights_BT[:, : 2 * characters - 1].any() and set(np.unique(weights_BT)) == {0.0, 1.0}
    differences = set()
    for tokens_T, weights_T in zip(tokens_BT[used_B], weights_BT[used_B], strict=True):
        row = tokenizer.decode(tokens_T[: int(np.flatnonzero(weights_T)[-1]) + 1]).split()
        values = [int(term) for term in row]
        [difference] = set(np.diff(values))
        assert 3 <= len(row) <= terms and all(len(term) == cfg.digits for term in row)
        assert cfg.min_difference <= difference <= cfg.max_difference
        assert split_of(np.array([difference]), np.array([values[0]]))[0] == 0
        differences.add(difference)
    assert len(differences) > 30


def test_rows_near_round_numbers_have_long_runs_of_equal_digits_far_more_often_than_drawn_ones(key):
    cfg = Config(digits=5)

    def share(tokens_BT, weights_BT):
        """Of the weighty terms, how many have the digits 000 or 999 at places 1 to 3."""
        terms_BNC = np.pad(tokens_BT, ((0, 0), (0, 1))).reshape(len(tokens_BT), -1, 6)[:, 2:, 1:4]
        weighty_BN = np.pad(weights_BT, ((0, 0), (0, 1))).reshape(len(tokens_BT), -1, 6)[:, 2:, 1] > 0
        run_BN = (terms_BNC == 0).all(-1) | (terms_BNC == 9).all(-1)
        return run_BN[weighty_BN].mean()

    drawn = share(*map(np.asarray, anywhere(key, draw(key, cfg, 4096, "train"), 5, 4)))
    near = share(*map(np.asarray, near_round(key, cfg, 4096, 4)))
    assert near > 20 * drawn > 0
