"""Crops of rows: from anywhere, and from where a term is close to a round number."""

import jax
import numpy as np
import pytest

from apformer.tasks.progressions import crops, generator
from apformer.tasks.progressions.generator import Config, Progressions, split_of
from apformer.tokenizers import digits as tokenizer

draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))
anywhere = jax.jit(crops.anywhere, static_argnums=(2, 3))
near_round = jax.jit(crops.near_round, static_argnums=(1, 2, 3))


@pytest.fixture
def key():
    return jax.random.key(5)


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


def test_rows_near_round_numbers_often_have_round_differences(key):
    tokens_BT, weights_BT = map(np.asarray, near_round(key, Config(digits=3), 4096, 4))
    first_B, second_B = tokens_BT[:, :3] @ [100, 10, 1], tokens_BT[:, 4:7] @ [100, 10, 1]
    round_B = (second_B - first_B) % 100 == 0
    assert round_B[weights_BT.any(1)].mean() > 0.1
    assert set((second_B - first_B)[weights_BT.any(1) & round_B]) == {100, 200, 300, 400}
