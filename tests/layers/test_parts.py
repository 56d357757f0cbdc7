"""Affine map, RMSNorm and dropout in a block, against numpy; the whole is held to PyTorch in tests/parity."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers.block import Block
from apformer.layers.feedforward import Linear
from apformer.layers.masks import whole_view
from apformer.layers.norm import RMSNorm
from tests.helpers.small_models import small

B, T, D = 2, 3, 5


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def test_linear_starts_within_glorot_bounds_and_without_bias():
    params = Linear(200).init(jax.random.key(0), jnp.zeros((1, 1, 300)))["params"]
    bound = math.sqrt(6 / (200 + 300))
    weight = np.asarray(params["weight"])
    assert 0.98 * bound < np.abs(weight).max() <= bound
    np.testing.assert_allclose(weight.std(), bound / math.sqrt(3), rtol=0.02)
    assert (np.asarray(params["bias"]) == 0).all()


@pytest.mark.parametrize("epsilon", [1e-5, 1e-1])
def test_rms_norm_is_its_definition(epsilon):
    """LayerNorm is held by the sketch in test_model.py."""
    x, gain = 3 * random(B, T, D) + 1, random(D, seed=1)
    y = RMSNorm(epsilon).apply({"params": {"scale": gain}}, x)
    x64, gain64 = (np.asarray(a, np.float64) for a in (x, gain))
    np.testing.assert_allclose(y, x64 / np.sqrt((x64**2).mean(-1, keepdims=True) + epsilon) * gain64, atol=1e-5)


def test_dropout_in_a_block_falls_on_what_the_sublayers_add_and_differs_between_them():
    """With both sub-layers made to add ones, a coordinate gains 0, 2 or 4 at rate 1/2, and the two masks differ."""
    x, view = jnp.zeros((1, 101, 6)), whole_view(jnp.arange(101)[None])
    block = Block(small(attention_bias=True, output_projection=True, norm="none", dropout=0.5))
    shapes = jax.eval_shape(lambda: block.init(jax.random.key(0), x, view))["params"]
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    params["attention"]["output_bias"] += 1
    params["feedforward"]["contract"]["bias"] += 1
    y, _, _ = block.apply({"params": params}, x, view, rngs={"dropout": jax.random.key(1)})
    shares = [(np.asarray(y) == total).mean() for total in (0, 2, 4)]
    np.testing.assert_allclose(shares, [1 / 4, 1 / 2, 1 / 4], atol=0.08)
