"""The Bayes predictor against the enumeration of everything that the generator can draw."""

import math
import tracemalloc
from collections import defaultdict

import numpy as np
import pytest

from apformer.tasks.progressions.bayes import bayes_floor, bayes_nats
from apformer.tasks.progressions.generator import Config, Progressions

SMALL = [
    Config(digits=1, min_terms=2, max_terms=4, min_difference=1, max_difference=9),
    Config(digits=2, min_terms=2, max_terms=100, min_difference=1, max_difference=30),
    Config(digits=2, min_terms=3, max_terms=6, min_difference=-40, max_difference=7),
    Config(digits=2, min_terms=2, max_terms=5, min_difference=-9, max_difference=-2),
    Config(digits=1, min_terms=2, max_terms=20, min_difference=0, max_difference=0),
]


def enumerate_draws(cfg):
    """Every (difference, terms, first) with its probability, by the words of the task."""
    top = 10**cfg.digits - 1
    differences = range(cfg.min_difference, cfg.max_difference + 1)
    for difference in differences:
        most = cfg.max_terms if difference == 0 else min(cfg.max_terms, 1 + top // abs(difference))
        for terms in range(cfg.min_terms, most + 1):
            ends = [(first, first + (terms - 1) * difference) for first in range(top + 1)]
            firsts = [first for first, last in ends if 0 <= last <= top]
            for first in firsts:
                yield (first, difference, terms), 1 / (len(differences) * (most - cfg.min_terms + 1) * len(firsts))


def test_the_enumeration_adds_up_to_one():
    for cfg in SMALL:
        assert sum(p for _, p in enumerate_draws(cfg)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("cfg", SMALL)
def test_floor_and_nats_equal_brute_force(cfg):
    p_pair, p_character, predicted = defaultdict(float), defaultdict(float), 0.0
    for (first, difference, terms), p in enumerate_draws(cfg):
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


def test_floor_sums_over_blocks_of_differences(monkeypatch):
    cfg = Config(digits=3, min_difference=-50)
    whole = bayes_floor(cfg)
    monkeypatch.setattr("apformer.tasks.progressions.bayes._CELLS", 37 * 100)
    assert bayes_floor(cfg) == pytest.approx(whole, rel=1e-12)


def test_what_the_generator_never_draws_costs_infinitely_much():
    cfg = Config(digits=2, min_difference=-3, max_difference=5)
    rows = Progressions(*np.array([[0, 6, 2], [98, 5, 2], [2, -3, 2], [0, -60, 2], [94, 5, 2]], np.int32).T)
    assert np.isinf(bayes_nats(rows, cfg)).tolist() == [True, True, True, True, False]


def test_many_rows_of_many_terms_take_little_memory():
    """5,000 rows by 9,998 numbers of terms would be 400 MB in one array."""
    cfg = Config(digits=4, max_terms=9999, max_difference=3)
    rows = Progressions(*np.tile(np.array([[5], [3], [2]], np.int32), 5000))
    tracemalloc.start()
    nats_B = bayes_nats(rows, cfg)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6 and nats_B.shape == (5000,)
    np.testing.assert_array_equal(nats_B, nats_B[0])
