"""The first two terms of rows: as the generator draws them, but for the last digits that make a held-out line."""

import jax
import numpy as np
import pytest

from apformer.tasks.progressions import bayes, first_two_terms
from apformer.tasks.progressions.generator import Config, draw, encode_rows, split_of

BOTH_WAYS = Config(digits=2, min_difference=-30, max_difference=30)
NOTHING_SMALL = Config(digits=2, min_difference=10, max_difference=40)

sample = jax.jit(first_two_terms.sample, static_argnums=(1, 2))


def pairs(batch):
    """First and second terms of two digits, and the weight of their rows."""
    tokens_BT, weights_BT = map(np.asarray, batch)
    assert (weights_BT[:, 0] == 0).all() and (weights_BT[:, 1:] == weights_BT[:, 1:2]).all()
    return tokens_BT[:, 0] * 10 + tokens_BT[:, 1], tokens_BT[:, 3] * 10 + tokens_BT[:, 4], weights_BT[:, 1]


def is_train(first_B, second_B):
    return split_of((second_B - first_B).astype(np.int32), first_B.astype(np.int32)) == 0


@pytest.mark.parametrize("cfg", [BOTH_WAYS, NOTHING_SMALL])
def test_all_but_the_last_digit_is_as_likely_as_the_generator_has_it(cfg):
    """Every beginning, such as 07 3., and on training lines every end of it, within five standard errors."""
    first_M, difference_M = (grid.ravel() for grid in np.mgrid[0:100, cfg.min_difference : cfg.max_difference + 1])
    inside_M = (0 <= first_M + difference_M) & (first_M + difference_M < 100)
    first_M, difference_M = first_M[inside_M], difference_M[inside_M]
    second_M = first_M + difference_M
    p_M = bayes.probability(first_M, difference_M, cfg)
    begins_M = first_M * 10 + second_M // 10
    p_begins = np.bincount(begins_M, p_M, 1000)
    train_M = is_train(first_M, second_M)
    p_train = np.bincount(begins_M, p_M * train_M, 1000)
    reachable = p_train > 0
    assert reachable[begins_M].mean() > 0.95

    size, found = 60_000, np.zeros((100, 100))
    first_B, second_B, weight_B = pairs(sample(jax.random.key(1), cfg, size))
    np.add.at(found, (first_B, second_B), weight_B / size)
    error = 5 * np.sqrt(p_begins * weight_B.max() / size)
    assert (np.abs(found.reshape(100, 10, 10).sum(2).ravel() - p_begins)[reachable] <= error[reachable] + 1e-4).all()
    expected_M = np.where(train_M, p_M * p_begins[begins_M] / np.maximum(p_train[begins_M], 1e-30), 0.0)
    error_M = 5 * np.sqrt(expected_M * weight_B.max() / size) + 1e-4
    assert (np.abs(found[first_M, second_M] - expected_M) <= np.where(train_M, error_M, 0.0)).all()


def siblings(first, second, cfg):
    """Second terms with other last digits: those the generator draws, and those of them on training lines."""
    drawn = range(second // 10 * 10, second // 10 * 10 + 10)
    drawn = [s for s in drawn if cfg.min_difference <= s - first <= cfg.max_difference]
    return drawn, [s for s in drawn if split_of(np.array([s - first]), np.array([first]))[0] == 0]


@pytest.mark.parametrize("cfg", [BOTH_WAYS, Config(digits=2, min_terms=3, min_difference=5, max_difference=40)])
def test_unseen_digits_are_those_of_held_out_lines_alone(cfg):
    rows = jax.jit(draw, static_argnums=(1, 2, 3))(jax.random.key(5), cfg, 64, None)
    tokens_BT = encode_rows(rows, 2, 2).tokens_BT
    unseen_BV = np.asarray(first_two_terms.unseen_digits(tokens_BT, cfg))
    for unseen_V, first, difference in zip(unseen_BV, *map(np.asarray, rows[:2]), strict=True):
        drawn, train = siblings(first, first + difference, cfg)
        drawn = [s for s in drawn if 0 <= first + (cfg.min_terms - 1) * (s - first) <= 99]
        assert [*np.flatnonzero(unseen_V)] == [s % 10 for s in drawn if s not in train]
    masked_BTV = first_two_terms.without_unseen_digits(jax.numpy.zeros((64, 4, 11)), tokens_BT, cfg)
    low_BTV = np.asarray(masked_BTV) < -1e30
    assert unseen_BV.any() and (low_BTV[:, 3, :10] == unseen_BV).all() and low_BTV.sum() == unseen_BV.sum()
