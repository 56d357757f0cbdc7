"""Embedding, head, affine map, feed-forward network, LayerNorm and residual block, against numpy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers.block import Block
from apformer.layers.embedding import Head
from apformer.layers.feedforward import FeedForward, Linear
from apformer.layers.masks import whole_view
from apformer.layers.norm import LayerNorm, RMSNorm
from tests.helpers.small_models import small

B, T, D, F, V = 2, 3, 5, 7, 11


def random(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def numpy_activation(kind, x):
    if kind == "relu":
        return np.where(x > 0, x, 0)
    if kind == "gelu":  # x times the normal distribution function
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def numpy_layer_norm(x, gain, bias, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gain + bias


@pytest.mark.parametrize("bias", [False, True])
def test_a_head_is_an_affine_map_or_scores_each_row_of_the_table(bias):
    x, weight_DV, bias_V = random(B, T, D), random(D, V, seed=1), random(V, seed=2)
    own = {"bias": bias_V} if bias else {}
    expected = np.asarray(x) @ np.asarray(weight_DV) + np.asarray(bias_V) * bias
    logits = Head(V, bias).apply({"params": {"output": {"weight": weight_DV} | own}}, x)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    np.testing.assert_allclose(Head(V, bias).apply({"params": own}, x, weight_DV.T), expected, atol=1e-5)


def test_linear_starts_within_glorot_bounds_and_without_bias():
    params = Linear(200).init(jax.random.key(0), jnp.zeros((1, 1, 300)))["params"]
    bound = math.sqrt(6 / (200 + 300))
    weight = np.asarray(params["weight"])
    assert 0.98 * bound < np.abs(weight).max() <= bound
    np.testing.assert_allclose(weight.std(), bound / math.sqrt(3), rtol=0.02)
    assert (np.asarray(params["bias"]) == 0).all()


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_feedforward_is_two_affine_maps_with_an_activation_between(activation):
    x = random(B, T, D)
    expand = {"weight": random(D, F, seed=1), "bias": random(F, seed=2)}
    contract = {"weight": random(F, D, seed=3), "bias": random(D, seed=4)}
    y = FeedForward(F, activation).apply({"params": {"expand": expand, "contract": contract}}, x)
    w1, b1, w2, b2 = (np.asarray(a, np.float64) for a in (*expand.values(), *contract.values()))
    np.testing.assert_allclose(y, numpy_activation(activation, np.asarray(x) @ w1 + b1) @ w2 + b2, atol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-1])
def test_norms_are_their_definitions(epsilon):
    x, gain, bias = 3 * random(B, T, D) + 1, random(D, seed=1), random(D, seed=2)
    x64, gain64, bias64 = (np.asarray(a, np.float64) for a in (x, gain, bias))
    y = LayerNorm(epsilon).apply({"params": {"scale": gain, "bias": bias}}, x)
    np.testing.assert_allclose(y, numpy_layer_norm(x64, gain64, bias64, epsilon), atol=1e-5)
    y = RMSNorm(epsilon).apply({"params": {"scale": gain}}, x)
    np.testing.assert_allclose(y, x64 / np.sqrt((x64**2).mean(-1, keepdims=True) + epsilon) * gain64, atol=1e-5)


@pytest.mark.parametrize("norm", ["layer", "none"])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_a_block_is_two_residual_sublayers(norm, norm_position):
    x = random(B, T, 6)
    view, mask_TS = whole_view(jnp.arange(T)[None]), np.tri(T, dtype=bool)
    block = Block(small(output_projection=True, norm=norm, norm_position=norm_position))
    shapes = jax.eval_shape(lambda: block.init(jax.random.key(0), x, view))["params"]
    params = jax.tree.map(lambda leaf: random(*leaf.shape, seed=leaf.size), shapes)
    y, seen, cache = block.apply({"params": params}, x, view)

    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def normed(name, x):
        return x if norm == "none" else numpy_layer_norm(x, p[name]["scale"], p[name]["bias"], 1e-5)

    def attention(x):
        q, k, v = (np.einsum("BTD,DHK->BHTK", x, p["attention"][name]) for name in ("query", "key", "value"))
        scores = np.where(mask_TS, q @ k.swapaxes(2, 3) / np.sqrt(2), -np.inf)
        softmax = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(seen["attention"], softmax / softmax.sum(-1, keepdims=True), atol=1e-4)
        return np.einsum("BHTK,HKD->BTD", softmax / softmax.sum(-1, keepdims=True) @ v, p["attention"]["output"])

    def feedforward(x):
        expand, contract = p["feedforward"]["expand"], p["feedforward"]["contract"]
        return np.maximum(x @ expand["weight"] + expand["bias"], 0) @ contract["weight"] + contract["bias"]

    expected = np.asarray(x, np.float64)
    for name, sublayer in (("attention_norm", attention), ("feedforward_norm", feedforward)):
        if norm_position == "pre":
            expected = expected + sublayer(normed(name, expected))
        else:
            expected = normed(name, expected + sublayer(expected))
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
    assert cache is None


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
