"""Crops of rows: from anywhere, and from where a term is close to a round number."""

import jax
import numpy as np
import pytest

from apformer.tasks.progressions import crops, generator
from apformer.tasks.progressions.generator import Config, Progressions, split_of
from apformer.tokenizers import digits as tokenizer

anywhere = jax.jit(crops.anywhere, static_argnums=2)
long = jax.jit(crops.long, static_argnums=(1, 2))
near_round = jax.jit(crops.near_round, static_argnums=(1, 2, 3))
KEY = jax.random.key(5)


def test_a_stretch_from_anywhere_has_two_first_terms_that_weigh_nothing_and_ends_with_its_row():
    rows = Progressions(*(np.repeat(np.int32(pair), 64) for pair in ((3, 3), (10, 10), (6, 2))))
    crops_B, _ = anywhere(KEY, rows, 3)
    tokens_BT, weights_BT = map(np.asarray, crops.predictable(generator.encode_rows(crops_B, 2, 3), 2))
    texts = [tokenizer.decode(tokens_T) for tokens_T in tokens_BT]
    assert {*texts[:64]} == {"03 13 23", "13 23 33", "23 33 43", "33 43 53"}
    np.testing.assert_array_equal(weights_BT[:64], np.tile(np.float32([0, 0, 0, 0, 0, 1, 1, 1]), (64, 1)))
    assert {text[:5] for text in texts[64:]} == {"03 13"} and not weights_BT[64:].any()


@pytest.mark.parametrize("low, high, shortest", [(1, 40, 4), (-30, -3, 3), (-4, 4, 7)])
def test_long_rows_are_training_rows_of_all_lengths_that_go_on_for_as_long_as_they_can(low, high, shortest):
    cfg = Config(digits=2, min_difference=low, max_difference=high)
    first_N, difference_N, terms_N = (np.asarray(leaf) for leaf in long(KEY, cfg, 512))
    trained_N = split_of(difference_N, first_N) == 0
    assert (trained_N == (terms_N > 0)).all()
    assert (low <= difference_N).all() and (difference_N <= high).all()
    last_N = first_N + (terms_N - 1) * difference_N
    inside_N = (0 <= first_N) & (first_N < 100) & (0 <= last_N) & (last_N < 100)
    over_N = (last_N + difference_N < 0) | (last_N + difference_N > 99) | (terms_N == cfg.max_terms)
    assert inside_N[trained_N].all() and over_N[trained_N].all()
    assert (terms_N[trained_N].min(), terms_N.max()) == (shortest, generator.most_terms(cfg))


def test_rows_near_round_numbers_are_stretches_of_training_lines():
    cfg = Config(digits=3, min_difference=-400, max_difference=400)
    first_N, difference_N, terms_N = np.asarray(near_round(KEY, cfg, 2048, 5))
    used_N, last_N = terms_N > 0, first_N + (terms_N - 1) * difference_N
    assert 0.25 < used_N.mean() < 0.9 and (split_of(difference_N, first_N)[used_N] == 0).all()
    assert set(terms_N[used_N]) <= {3, 4, 5}
    for value_N, low, high in ((first_N, 0, 999), (last_N, 0, 999), (difference_N, -400, 400)):
        assert low <= value_N[used_N].min() and value_N[used_N].max() <= high
    assert len(np.unique(difference_N[used_N])) > 30 and np.mean(difference_N[used_N] % 100 == 0) > 0.1


def test_terms_before_a_crop_are_all_that_its_row_may_have():
    cfg = Config(digits=2, max_terms=9)
    rows = Progressions(*np.repeat(np.int32([[0, 35, 96, 2], [10, 10, 1, -40], [4, 4, 4, 3]]), 256, axis=1))
    before_B = np.asarray(crops.terms_before(KEY, rows, cfg, 4)).reshape(4, 256)
    assert [sorted({*row.tolist()}) for row in before_B] == [[0], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [0, 1, 2]]
