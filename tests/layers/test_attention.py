"""Attention against loops over its definition, and the causal mask against arrays written out."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers.attention import Attention, Config, attend
from apformer.layers.masks import View, causal_mask
from apformer.layers.similarity import compare

B, T, S, H, K = 2, 3, 5, 7, 11

compiled_attend = jax.jit(attend, static_argnames=("similarity", "weighting"))
compiled_compare = jax.jit(compare, static_argnames="similarity")


def looped_attention(q, k, v, mask, bias, sink, scale):
    """softmax(scale q.k + bias) v over the keys each query may see and a sink of value 0, one number at a time."""
    out = np.zeros((B, T, H, K))
    weights = np.zeros((B, H, T, S))
    for b, t, h in itertools.product(range(B), range(T), range(H)):
        seen = [s for s in range(S) if mask[b, t, s]]
        exponentials = {}
        for s in seen:
            score = scale * sum(float(q[b, t, h, i]) * float(k[b, s, h, i]) for i in range(K)) + float(bias[b, h, t, s])
            exponentials[s] = np.exp(score)
        total = sum(exponentials.values()) + (0 if sink is None else np.exp(sink[h]))
        for s in seen:
            weights[b, h, t, s] = exponentials[s] / total
            for i in range(K):
                out[b, t, h, i] += weights[b, h, t, s] * float(v[b, s, h, i])
    return out, weights


@pytest.fixture(scope="module")
def qkv():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((B, length, H, K)).astype(np.float32) for length in (T, S, S))
    return q, k, v


def masks():
    rng = np.random.default_rng(1)
    ragged = rng.random((B, T, S)) < 0.5
    ragged[:, :, 1] = True
    positions_BT, positions_BS = jnp.array([[2, 3, 4], [1, 2, 3]]), jnp.array([[0, 1, 2, 3, 4], [3, -1, 0, 1, 2]])
    return {
        "all": np.ones((B, T, S), bool),
        "causal": np.asarray(causal_mask(positions_BT, positions_BS)),
        "window": np.asarray(causal_mask(positions_BT, positions_BS, 2)),
        "ragged": ragged,
    }


@pytest.mark.parametrize("similarity", ["scaled_dot", "dot", "none"])
@pytest.mark.parametrize("biased, sunk", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("mask", masks())
def test_attention_is_its_definition(qkv, similarity, biased, sunk, mask):
    q, k, v = qkv
    mask_BTS = masks()[mask]
    bias_BHTS = np.random.default_rng(2).standard_normal((B, H, T, S)).astype(np.float32) * biased
    sink_H = np.linspace(-1, 2, H).astype(np.float32) if sunk else None
    bias = bias_BHTS if biased else None
    out, weights = compiled_attend(q, k, v, mask_BTS, bias, sink_H, similarity=similarity)
    scale = {"scaled_dot": 1 / np.sqrt(K), "dot": 1.0, "none": 0.0}[similarity]
    looped_out, looped_weights = looped_attention(q, k, v, mask_BTS, bias_BHTS, sink_H, scale)
    np.testing.assert_allclose(weights, looped_weights, atol=2e-6)
    np.testing.assert_allclose(out, looped_out, atol=2e-6)
    if not sunk:
        np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-6)
    assert (np.asarray(weights)[~np.broadcast_to(mask_BTS[:, None], weights.shape)] == 0).all()


@pytest.mark.parametrize("mask", masks())
def test_geometric_attention_shares_out_what_is_left(qkv, mask):
    """From the first key on, each takes sigmoid(score) of what those before it left; what is masked takes nothing."""
    q, k, v = qkv
    mask_BTS = masks()[mask]
    bias_BHTS = np.random.default_rng(2).standard_normal((B, H, T, S)).astype(np.float32)
    out, weights = compiled_attend(q, k, v, mask_BTS, bias_BHTS, weighting="geometric")
    expected = np.zeros((B, H, T, S))
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        left = 1.0
        for s in range(S):
            if mask_BTS[b, t, s]:
                score = float(q[b, t, h] @ k[b, s, h]) / np.sqrt(K) + float(bias_BHTS[b, h, t, s])
                expected[b, h, t, s] = left / (1 + np.exp(-score))
                left -= expected[b, h, t, s]
    np.testing.assert_allclose(weights, expected, atol=2e-6)
    np.testing.assert_allclose(out, np.einsum("BHTS,BSHK->BTHK", expected, v), atol=1e-5)


def scores_of(similarity, q, k, learned):
    """The score of one query and one key, in plain numpy."""
    if similarity == "cosine":
        return learned * (q @ k) / np.sqrt((q @ q) * (k @ k))
    return float(np.sum(learned * np.tanh(q + k)))


@pytest.mark.parametrize("similarity, name, shape", [("cosine", "gain_H", (H,)), ("additive", "vector_HK", (H, K))])
def test_cosine_and_additive_scores_are_their_definitions(qkv, similarity, name, shape):
    q, k, v = qkv
    mask_BTS, learned = masks()["ragged"], np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    scores = compiled_compare(q, k, similarity, **{name: learned})
    out, weights = compiled_attend(q, k, v, mask_BTS, similarity=similarity, **{name: learned})
    wide = [np.float64(x) for x in (q, k, learned)]
    expected = np.zeros((B, H, T, S))
    for b, h, t, s in itertools.product(range(B), range(H), range(T), range(S)):
        expected[b, h, t, s] = scores_of(similarity, wide[0][b, t, h], wide[1][b, s, h], wide[2][h])
    np.testing.assert_allclose(scores, expected, atol=5e-6)
    exponentials = np.where(mask_BTS[:, None], np.exp(expected), 0)
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=2e-6)
    np.testing.assert_allclose(out, np.einsum("BHTS,BSHK->BTHK", expected, v), atol=1e-5)


def test_a_cosine_knows_no_lengths_and_has_a_gradient_at_zero(qkv):
    q, k, _ = qkv
    gain = np.ones(H, np.float32)
    scores = compiled_compare(q, k, "cosine", gain_H=gain)
    np.testing.assert_allclose(compiled_compare(100 * q, k / 100, "cosine", gain_H=gain), scores, atol=1e-5)
    np.testing.assert_allclose(compiled_compare(q, q, "cosine", gain_H=gain).diagonal(0, 2, 3), 1, atol=1e-6)
    gradient = jax.grad(lambda q: compare(q, k, "cosine", gain).sum())(jnp.zeros_like(q))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("similarity", ["scaled_dot", "cosine"])
def test_the_gain_of_a_cosine_starts_where_the_spread_is_that_of_scaled_dot(similarity):
    """Of vectors drawn at random, of unit variance: 1, whatever their width."""
    for width in (16, 256):
        q, k = jax.random.normal(jax.random.key(width), (2, 1, 64, 1, width))
        scores = compare(q, k, similarity, gain_H=jnp.full(1, width**0.5))
        np.testing.assert_allclose(np.std(scores), 1, rtol=0.1)


@pytest.mark.parametrize("similarity", ["cosine", "additive"])
def test_what_a_similarity_learns_has_a_gradient_in_every_head(similarity):
    attention = Attention(Config(3, similarity=similarity))
    x_BTD = jnp.asarray(np.random.default_rng(0).standard_normal((B, T, 6), np.float32))
    inputs = (x_BTD, View(np.tri(T, dtype=bool)[None]))
    params = attention.init(jax.random.key(0), *inputs)["params"]

    @jax.jit
    @jax.grad
    def gradient(params):
        return jnp.square(attention.apply({"params": params}, *inputs)[0]).sum()

    gradients = gradient(params)
    assert (np.asarray(gradients[{"cosine": "gain", "additive": "vector"}[similarity]]) != 0).all()
    assert (np.asarray(gradients["query"]) != 0).all() and (np.asarray(gradients["key"]) != 0).all()


def test_a_decided_head_of_shares_reads_one_key_however_many_there_are():
    """The first key of a kind, with weight 1, after 500 others: a softmax would have to beat them all."""
    scores = np.full((1, 1, 1, 1000), -20.0, np.float32)
    scores[..., 500:] = 20.0
    zero, v = jnp.zeros((1, 1, 1, 1)), jnp.arange(1000, dtype=jnp.float32)[None, :, None, None]
    out, weights = attend(
        zero, jnp.zeros((1, 1000, 1, 1)), v, jnp.ones((1, 1, 1000), bool), scores, weighting="geometric"
    )
    np.testing.assert_allclose(weights[0, 0, 0, 500], 1, atol=1e-5)
    np.testing.assert_allclose(out[0, 0, 0, 0], 500, rtol=1e-5)


def test_a_query_that_sees_nothing_is_finite_and_so_is_its_gradient(qkv):
    q, k, v = qkv
    mask_BTS = jnp.ones((B, T, S), bool).at[0, 1].set(False)
    out, weights = compiled_attend(q, k, v, mask_BTS)
    np.testing.assert_allclose(out[0, 1], v[0].mean(0), atol=1e-6)
    np.testing.assert_allclose(weights[0, :, 1], 1 / S, atol=1e-6)
    gradients = jax.jit(jax.grad(lambda qkv: attend(*qkv, mask_BTS)[0].sum()))((q, k, v))
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_a_query_that_sees_a_sink_alone_reads_nothing(qkv):
    mask_BTS = np.ones((B, T, S), bool)
    mask_BTS[0, 1] = False
    out, weights = compiled_attend(*qkv, mask_BTS, sink_H=np.zeros(H, np.float32))
    assert (np.asarray(out)[0, 1] == 0).all() and (np.asarray(weights)[0, :, 1] == 0).all()


def test_a_sink_tells_one_token_from_several_that_are_equal():
    """Equal scores and values, and a sink of the same score: n keys have n / (n + 1) of the weight."""
    ones = np.ones((1, 3, 1, 2), np.float32)
    out, _ = compiled_attend(ones * 0, ones, ones, np.tri(3, dtype=bool)[None], sink_H=np.zeros(1, np.float32))
    np.testing.assert_allclose(out[0, :, 0, 0], [1 / 2, 2 / 3, 3 / 4], rtol=1e-6)


def test_scores_of_any_size_are_finite(qkv):
    q, k, v = qkv
    out, weights = compiled_attend(1e4 * q, 1e4 * k, v, np.ones((B, T, S), bool))
    assert np.isfinite(out).all()
    np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-6)


def test_softmax_of_bfloat16_inputs_is_float32(qkv):
    """256 keys alike share the weight: summed in bfloat16, which holds 8 bits, they would not come to one."""
    q_BTHK = jnp.ones((1, 1, 1, 2), jnp.bfloat16)
    k_BSHK = jnp.zeros((1, 257, 1, 2), jnp.bfloat16).at[0, 0].set(4)
    v_BSHK = jnp.ones((1, 257, 1, 2), jnp.bfloat16)
    _, weights_BHTS = attend(q_BTHK, k_BSHK, v_BSHK, jnp.ones((1, 1, 257), bool))
    assert weights_BHTS.dtype == jnp.bfloat16
    scores = np.array([4 * 2 / np.sqrt(2)] + [0.0] * 256)
    expected = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(np.asarray(weights_BHTS, np.float64)[0, 0, 0], expected, rtol=2**-8)


def test_causal_mask_is_a_triangle():
    positions = jnp.arange(4)[None]
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    np.testing.assert_array_equal(causal_mask(positions, positions)[0], np.array(expected, bool))


def test_a_window_counts_the_token_itself():
    positions = jnp.arange(5)[None]
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    np.testing.assert_array_equal(causal_mask(positions, positions, 2)[0], np.array(expected, bool))
    np.testing.assert_array_equal(causal_mask(positions, positions, 1)[0], np.eye(5, dtype=bool))


def test_a_mask_goes_by_positions_not_by_slots_and_empty_slots_are_unseen():
    positions_BT = jnp.array([[4, 5], [0, 1]])
    positions_BS = jnp.array([[4, 5, 2, 3, -1], [-1, 0, -1, 1, -1]])
    everything = [[[1, 0, 1, 1, 0], [1, 1, 1, 1, 0]], [[0, 1, 0, 0, 0], [0, 1, 0, 1, 0]]]
    window = [[[1, 0, 1, 1, 0], [1, 1, 0, 1, 0]], [[0, 1, 0, 0, 0], [0, 1, 0, 1, 0]]]
    np.testing.assert_array_equal(causal_mask(positions_BT, positions_BS), np.array(everything, bool))
    np.testing.assert_array_equal(causal_mask(positions_BT, positions_BS, 3), np.array(window, bool))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("output_projection", [False, True])
def test_heads_are_slices_of_the_projections(bias, output_projection):
    """Heads of width K side by side: head h reads W[:, h] and writes the columns h K .. (h + 1) K."""
    D, n_heads, width = 6, 3, 2
    rng = np.random.default_rng(0)
    x_BTD = jnp.asarray(np.asarray(rng.standard_normal((B, T, D)), jnp.float32))
    positions_BT = jnp.arange(T)[None]
    mask_BTS = causal_mask(positions_BT, positions_BT)
    attention = Attention(Config(n_heads, bias, output_projection))
    inputs = (x_BTD, View(mask_BTS))
    shapes = jax.eval_shape(lambda: attention.init(jax.random.key(0), *inputs))["params"]
    params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(rng.standard_normal(leaf.shape), jnp.float32)), shapes)
    y_BTD, weights_BHTS, cache = jax.jit(attention.apply)({"params": params}, *inputs)

    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    heads = []
    for h in range(n_heads):
        q, k, v = (
            np.asarray(x_BTD) @ p[name][:, h] + (p[f"{name}_bias"][h] if bias else 0)
            for name in ("query", "key", "value")
        )
        scores = np.where(np.asarray(mask_BTS), q @ k.swapaxes(1, 2) / np.sqrt(width), -np.inf)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(weights_BHTS[:, h], weights, atol=1e-5)
        heads.append(weights @ v)
    expected = np.concatenate(heads, -1)
    if output_projection:
        expected = expected @ p["output"].reshape(D, D) + (p["output_bias"] if bias else 0)
    np.testing.assert_allclose(y_BTD, expected, rtol=1e-4, atol=1e-4)
    assert cache is None


def test_dropout_on_attention_weights_is_for_training_alone():
    """At rate 1/2 a weight is 0 or twice as large: with values of one, an output is a sum of such weights."""
    attention = Attention(Config(3, dropout=0.5))
    x_BTD, mask_BTS = jnp.ones((B, T, 6)), np.tri(T, dtype=bool)[None]
    params = attention.init(jax.random.key(0), x_BTD, View(mask_BTS))["params"]
    params |= {"value": params["value"] * 0 + 1 / 6}
    run = lambda training: attention.apply(  # noqa: E731
        {"params": params}, x_BTD, View(mask_BTS, training=training), rngs={"dropout": jax.random.key(1)}
    )
    y_BTD, weights_BHTS, _ = run(False)
    np.testing.assert_allclose(y_BTD, 1, rtol=1e-6)
    y_BTD, noisy_weights_BHTS, _ = run(True)
    np.testing.assert_array_equal(noisy_weights_BHTS, weights_BHTS)  # what is captured are the weights before dropout
    kept_T = np.arange(1, T + 1) * np.asarray(y_BTD)[:, :, ::2].swapaxes(1, 2) / 2  # how many of 1, 2, 3 equal weights
    np.testing.assert_allclose(kept_T, np.round(kept_T), atol=1e-5)
    assert 0 < kept_T.mean() < 2 and len(np.unique(np.round(kept_T))) > 2
