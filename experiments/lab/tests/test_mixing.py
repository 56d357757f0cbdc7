"""A decoder that mixes the tokens of a window: what its logits depend on, and its cache."""

import jax
import numpy as np
import pytest

from apformer_lab import mixing

CFG = mixing.Config(d_model=6, n_heads=3, n_layers=2, d_ff=5, window=3)
PARAMS = jax.tree.map(
    lambda leaf: (0.4 * np.random.default_rng(leaf.size).standard_normal(leaf.shape)).astype(np.float32),
    jax.eval_shape(lambda: mixing.init(jax.random.key(0), CFG)),
)
TOKENS_BT = np.random.default_rng(0).integers(0, 11, (3, 12)).astype(np.int32)
apply = jax.jit(mixing.apply, static_argnames="cfg")
extend = jax.jit(mixing.extend, static_argnames="cfg")


def test_logits_depend_on_the_tokens_within_reach_and_on_no_others():
    whole_BTV, reach = np.asarray(apply(PARAMS, TOKENS_BT, CFG)), mixing.reach(CFG)
    assert reach == 4
    for place in (0, 5, 11):
        other_BT = TOKENS_BT.copy()
        other_BT[:, place] = (other_BT[:, place] + 1) % 11
        changed_T = (np.asarray(apply(PARAMS, other_BT, CFG)) != whole_BTV).any((0, 2))
        assert np.flatnonzero(changed_T).tolist() == [*range(place, min(place + reach, 11) + 1)]


def test_the_cache_gives_the_logits_of_whole_rows_also_of_ragged_ones(same_in_pieces):
    cache, schedule = mixing.init_cache(CFG, 3, 12), [[4, 2, 0], [1, 4, 4], [3, 0, 4]]
    whole_BTV = apply(PARAMS, TOKENS_BT, CFG)
    same_in_pieces(extend, PARAMS, TOKENS_BT, CFG, cache, whole_BTV, schedule, rtol=1e-5, atol=1e-5)


def test_the_recipe_has_197_numbers():
    shapes = jax.eval_shape(lambda: mixing.init(jax.random.key(0), mixing.Config(d_ff=10)))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 197


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="d_model 5 is not a multiple of n_heads 3"):
        mixing.Config(d_model=5, n_heads=3)
