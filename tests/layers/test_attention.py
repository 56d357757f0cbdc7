"""Attention against loops over its definition, and at its edges: no key, large scores, half precision, dropout."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers import config
from apformer.layers.attention import Attention, attend
from apformer.layers.masks import causal_mask, whole_view
from apformer.layers.similarity import cosine
from tests.helpers.small_models import small

B, T, S, H, K = 2, 3, 5, 7, 11
VIEW = whole_view(jnp.arange(T)[None])  # of whole rows
WHOLE = np.ones((B, T, S), bool)

compiled_attend = jax.jit(attend, static_argnames="compare")


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Q = drawn(B, T, H, K)
KEYS = drawn(B, S, H, K, seed=1)
VALUES = drawn(B, S, H, K, seed=2)


def masks():
    ragged = np.random.default_rng(1).random((B, T, S)) < 0.5
    ragged[:, :, 1] = True
    positions_BT, positions_BS = jnp.array([[2, 3, 4], [1, 2, 3]]), jnp.array([[0, 1, 2, 3, 4], [3, -1, 0, 1, 2]])
    return WHOLE, causal_mask(positions_BT, positions_BS), causal_mask(positions_BT, positions_BS, 2), ragged


SCORES = {  # of one query and one key, in plain numpy; what is learned is one head's
    "scaled_dot": lambda q, k, _: q @ k / np.sqrt(K),
    "dot": lambda q, k, _: q @ k,
    "cosine": lambda q, k, gain: gain * (q @ k) / np.sqrt((q @ q) * (k @ k)),
    "additive": lambda q, k, vector: np.sum(vector * np.tanh(q + k)),
}
LEARNED = {"cosine": drawn(H, seed=3), "additive": drawn(H, K, seed=3)}


@pytest.mark.parametrize(
    "name, biased, sunk",
    [("scaled_dot", False, False), ("scaled_dot", True, True), ("dot", True, False)]
    + [("cosine", False, True), ("additive", False, False)],
)
def test_attention_is_its_definition(name, biased, sunk):
    """softmax(scores + bias) v over the keys each query may see and a sink of value 0, one number at a time."""
    bias_BHTS = drawn(B, H, T, S, seed=4) * biased
    sink_H = np.linspace(-1, 2, H).astype(np.float32) if sunk else None
    learned_H = LEARNED.get(name, np.zeros(H))
    compare = partial(config.load("similarity", name).score, lambda *_: learned_H)
    for mask_BTS in map(np.asarray, masks()):
        bias = bias_BHTS if biased else None
        out, weights = compiled_attend(Q, KEYS, VALUES, mask_BTS, bias, sink_H, compare)
        expected = np.zeros((B, H, T, S))
        for b, h, t in itertools.product(range(B), range(H), range(T)):
            for s in np.flatnonzero(mask_BTS[b, t]):
                q = np.float64(Q[b, t, h])
                k = np.float64(KEYS[b, s, h])
                own = np.float64(learned_H[h])
                expected[b, h, t, s] = np.exp(SCORES[name](q, k, own) + bias_BHTS[b, h, t, s])
        total_BHT1 = expected.sum(-1, keepdims=True)
        expected /= total_BHT1 + np.exp(sink_H)[:, None, None] if sunk else total_BHT1
        np.testing.assert_allclose(weights, expected, atol=2e-6)
        np.testing.assert_allclose(out, np.einsum("BHTS,BSHK->BTHK", expected, VALUES), atol=1e-5)
        assert (np.asarray(weights)[~np.broadcast_to(mask_BTS[:, None], weights.shape)] == 0).all()


def test_a_cosine_knows_no_lengths_and_has_a_gradient_at_zero():
    score = partial(cosine.score, lambda *_: np.ones(H, np.float32))
    np.testing.assert_allclose(score(100 * Q, KEYS / 100), score(Q, KEYS), atol=1e-5)
    np.testing.assert_allclose(score(Q, Q).diagonal(0, 2, 3), 1, atol=1e-6)
    gradient = jax.grad(lambda q: score(q, KEYS).sum())(jnp.zeros_like(Q))
    assert np.isfinite(gradient).all()
    gain_H = Attention(small(similarity="cosine")).init(jax.random.key(0), drawn(B, T, 6), VIEW)["params"]["gain"]
    np.testing.assert_allclose(gain_H, np.sqrt(2), rtol=1e-6)  # scores of random vectors have variance 1


def test_a_query_that_sees_nothing_is_finite_and_so_is_its_gradient():
    """Without a sink it averages its keys; with one it reads nothing."""
    mask_BTS = WHOLE.copy()
    mask_BTS[0, 1] = False
    out, weights = compiled_attend(Q, KEYS, VALUES, mask_BTS)
    np.testing.assert_allclose(out[0, 1], VALUES[0].mean(0), atol=1e-6)
    np.testing.assert_allclose(weights[0, :, 1], 1 / S, atol=1e-6)
    gradients = jax.jit(jax.grad(lambda qkv: attend(*qkv, mask_BTS)[0].sum()))((Q, KEYS, VALUES))
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    out, weights = compiled_attend(Q, KEYS, VALUES, mask_BTS, sink_H=np.zeros(H, np.float32))
    assert (np.asarray(out)[0, 1] == 0).all() and (np.asarray(weights)[0, :, 1] == 0).all()


def test_scores_of_any_size_are_finite():
    out, weights = compiled_attend(1e4 * Q, 1e4 * KEYS, VALUES, WHOLE)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-6)


def test_softmax_of_bfloat16_inputs_is_float32():
    """256 equal keys share the weight: summed in bfloat16, which holds 8 bits, they would not come to one."""
    q_BTHK = jnp.ones((1, 1, 1, 2), jnp.bfloat16)
    k_BSHK = jnp.zeros((1, 257, 1, 2), jnp.bfloat16).at[0, 0].set(4)
    v_BSHK = jnp.ones((1, 257, 1, 2), jnp.bfloat16)
    _, weights_BHTS = attend(q_BTHK, k_BSHK, v_BSHK, jnp.ones((1, 1, 257), bool))
    assert weights_BHTS.dtype == jnp.bfloat16
    scores = np.array([4 * 2 / np.sqrt(2)] + [0.0] * 256)
    expected = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(np.asarray(weights_BHTS, np.float64)[0, 0, 0], expected, rtol=2**-8)


def test_dropout_on_attention_weights_is_for_training_alone():
    """At rate 1/2 a weight is 0 or twice as large: with values of one, an output is a sum of such weights."""
    attention, x_BTD = Attention(small(attention_dropout=0.5)), jnp.ones((B, T, 6))
    params = attention.init(jax.random.key(0), x_BTD, VIEW)["params"]
    params |= {"value": params["value"] * 0 + 1 / 6}
    y_BTD, seen, _ = attention.apply({"params": params}, x_BTD, VIEW)
    np.testing.assert_allclose(y_BTD, 1, rtol=1e-6)
    rngs = {"dropout": jax.random.key(1)}
    y_BTD, before_dropout, _ = attention.apply({"params": params}, x_BTD, VIEW, rngs=rngs)
    np.testing.assert_array_equal(before_dropout["attention"], seen["attention"])
    count_T = np.arange(1, T + 1) * np.asarray(y_BTD)[:, :, ::2].swapaxes(1, 2) / 2  # of 1, 2, 3 equal weights
    np.testing.assert_allclose(count_T, np.round(count_T), atol=1e-5)
    assert 0 < count_T.mean() < 2 and len(np.unique(np.round(count_T))) > 2
