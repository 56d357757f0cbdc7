"""FIRE against its formula in numpy, and what it may depend on."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.layers import position
from apformer.layers.position.fire import Scheme
from tests.helpers.small_models import small

CFG = small(position="fire", position_options=Scheme(bias_width=4, threshold=5.0))


def by_the_formula(params, t, s, threshold):
    """f_h(psi(t - s) / psi(max(L, t))) of all heads, psi(x) = log(c x + 1)."""
    psi = lambda x: np.log(abs(params["c"]) * x + 1)  # noqa: E731
    share = psi(t - s) / (psi(max(abs(params["multiplier"]) * threshold, t)) + 1e-6)
    return np.maximum(share * params["up"] + params["up_bias"], 0) @ params["down"] + params["down_bias"]


def test_the_bias_is_the_formula():
    """Of queries before and after the threshold, at positions of any rows; only the size of c counts."""
    positions_BT, positions_BS = np.array([[2, 3, 19], [0, 7, 9]]), np.array([[0, 1, 2, 3, 4], [9, 1, 0, 4, 7]])
    at = None, jnp.asarray(positions_BT), jnp.asarray(positions_BS), small(n_heads=2), jnp.float32
    bias = position.Part(CFG.position_options, "bias")
    drawn = bias.init(jax.random.key(0), *at)["params"]
    params = drawn | {"c": jnp.float32(-0.7), "multiplier": jnp.float32(1.3), "down_bias": jnp.array([0.5, -2.0])}
    bias_BHTS = np.asarray(bias.apply({"params": params}, *at))
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    assert bias_BHTS.shape == (2, 2, 3, 5)
    for b, t, s in np.argwhere(positions_BT[:, :, None] >= positions_BS[:, None, :]):
        expected_H = by_the_formula(params, positions_BT[b, t], positions_BS[b, s], 5.0)
        np.testing.assert_allclose(bias_BHTS[b, :, t, s], expected_H, rtol=1e-5, atol=1e-6)


def test_scores_depend_on_where_a_query_stands_so_that_there_is_no_reach():
    assert model.reach(replace(CFG, window=5)) is None


def test_what_no_function_is_made_of_is_refused():
    for options, sentence in (
        ({"bias_width": 0}, "bias_width 0"),
        ({"threshold": 0.0}, "threshold 0.0"),
        ({"threshold": np.inf}, "threshold inf"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Scheme(**options)
