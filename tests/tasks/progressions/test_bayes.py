"""The Bayes predictor against the enumeration of everything that the generator can draw."""

import math
from collections import defaultdict

import numpy as np
import pytest

from apformer.tasks.progressions.bayes import bayes_floor, bayes_nats
from apformer.tasks.progressions.generator import Config, Progressions
from tests.helpers.enumeration import draws

SMALL = [
    Config(digits=1, min_terms=2, max_terms=4, min_difference=1, max_difference=9),
    Config(digits=2, min_terms=2, max_terms=100, min_difference=1, max_difference=30),
    Config(digits=2, min_terms=3, max_terms=6, min_difference=-40, max_difference=7),
    Config(digits=2, min_terms=2, max_terms=5, min_difference=-9, max_difference=-2),
    Config(digits=1, min_terms=2, max_terms=20, min_difference=0, max_difference=0),
]


@pytest.mark.parametrize("cfg", SMALL)
def test_floor_and_nats_equal_brute_force(cfg):
    p_pair = defaultdict(float)
    p_character = defaultdict(float)
    predicted = 0.0
    every = draws(cfg)
    assert sum(every.values()) == pytest.approx(1, abs=1e-12)
    for (first, difference, terms), p in every.items():
        p_pair[first, difference] += p
        p_character[first // 10 ** (cfg.digits - 1)] += p
        predicted += p * (terms * (cfg.digits + 1) - 2)
    nats = {pair: -math.log(p / p_character[pair[0] // 10 ** (cfg.digits - 1)]) for pair, p in p_pair.items()}
    floor = sum(p * nats[pair] for pair, p in p_pair.items()) / predicted
    assert bayes_floor(cfg) == pytest.approx(floor, rel=1e-12, abs=1e-14)
    first_B, difference_B = np.array(list(nats), np.int32).T
    rows = Progressions(first_B, difference_B, np.full_like(first_B, cfg.min_terms))
    np.testing.assert_allclose(bayes_nats(rows, cfg), list(nats.values()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("digits", "floor"), [(3, 0.4743), (4, 0.0973), (5, 0.0507)])
def test_floor_of_the_default_task(digits, floor):
    assert round(bayes_floor(Config(digits=digits)), 4) == floor


def test_rows_that_are_never_drawn_cost_infinitely_much():
    cfg = Config(2, 3, min_difference=-3, max_difference=5)
    rows = Progressions(*np.array([[0, 6, 2], [98, 5, 2], [2, -3, 2], [0, -60, 2], [89, 5, 2]], np.int32).T)
    assert np.isinf(bayes_nats(rows, cfg)).tolist() == [True, True, True, True, False]


def test_blocks_change_nothing(monkeypatch):
    cfg = Config(3, min_difference=-50)
    rows = Progressions(*np.tile(np.array([[5, 7], [3, -3], [2, 2]], np.int32), 50))
    whole = bayes_floor(cfg), bayes_nats(rows, cfg)
    for cells in 99, 3700:
        monkeypatch.setattr("apformer.tasks.progressions.bayes._CELLS", cells)
        assert bayes_floor(cfg) == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_array_equal(bayes_nats(rows, cfg), whole[1])
