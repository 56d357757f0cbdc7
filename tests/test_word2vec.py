"""Both architectures and both losses against a literal evaluation of their equations, and where they end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import word2vec

B, W, V, D, N = 7, 4, 13, 5, 3
BOTH = [(a, loss) for a in ("cbow", "skip_gram") for loss in ("softmax", "negative")]
each_model = pytest.mark.parametrize(("variant", "loss"), BOTH)
NOISE_V = np.arange(1, V + 1, dtype=np.float32) / np.float32(V * (V + 1) / 2)

loss_and_gradient = jax.jit(jax.value_and_grad(word2vec.loss, has_aux=True), static_argnums=3)


def config(variant="skip_gram", loss="negative"):
    return word2vec.Config(V, D, variant, loss, N)


def example(seed=0):
    """Parameters and windows: the first is full, the last empty."""
    rng = np.random.default_rng(seed)
    params = {name: rng.standard_normal((V, D)).astype(np.float32) for name in ("input", "output")}
    inside_BW = rng.random((B, W)) < 0.5
    inside_BW[0], inside_BW[-1] = True, False
    centre_B, context_BW = (rng.integers(0, V, shape).astype(np.int32) for shape in (B, (B, W)))
    return params, (centre_B, context_BW, inside_BW)


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def literally(params, windows, negatives_BON, cfg):
    """The loss, word by word in float64."""
    v, u = params["input"].astype(np.float64), params["output"].astype(np.float64)
    nats = []
    for b, (centre, context, inside) in enumerate(zip(*windows, strict=True)):
        slots = np.flatnonzero(inside)
        if cfg.variant == "skip_gram":
            given, predicted = [centre], [(slot, context[slot]) for slot in slots]
        else:
            given, predicted = context[slots], [(0, centre)] if len(slots) else []
        for slot, o in predicted:
            z_V = u @ v[given].mean(0)
            if cfg.loss == "softmax":
                nats.append(np.log(np.exp(z_V).sum()) - z_V[o])
            else:
                nats.append(-log_sigmoid(z_V[o]) - log_sigmoid(-z_V[negatives_BON[b, slot]]).sum())
    return np.mean(nats)


@each_model
def test_the_loss_is_that_of_the_equations(variant, loss, key):
    cfg, (params, windows) = config(variant, loss), example()
    (found, metrics), _ = loss_and_gradient(params, windows, key, cfg, NOISE_V)
    negatives_BON = np.asarray(word2vec.draw(key, NOISE_V, (B, 1 if variant == "cbow" else W, N)))
    np.testing.assert_allclose(found, literally(params, windows, negatives_BON, cfg), rtol=1e-5)
    assert metrics == {"loss": found}


@pytest.mark.parametrize("variant", ["cbow", "skip_gram"])
def test_without_a_key_the_loss_is_the_expectation_over_negatives(variant):
    """Each negative alone, weighted with its probability: the loss is linear in the distribution of each."""
    cfg, (params, windows) = config(variant, "negative"), example()
    slots = 1 if variant == "cbow" else W
    expected = 0.0
    for word, probability in enumerate(NOISE_V):
        expected += probability * literally(params, windows, np.full((B, slots, N), word), cfg)
    (found, _), _ = loss_and_gradient(params, windows, None, cfg, NOISE_V)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(("variant", "loss"), [("cbow", "softmax"), ("skip_gram", "negative")])
def test_slots_that_do_not_count_change_nothing_and_without_any_the_loss_is_zero(variant, loss, key):
    cfg, (params, (centre_B, context_BW, inside_BW)) = config(variant, loss), example()
    other_BW = np.where(inside_BW, context_BW, (context_BW + 1) % V)
    one, other, (empty, gradients) = (
        loss_and_gradient(params, windows, key, cfg, NOISE_V)
        for windows in (
            (centre_B, context_BW, inside_BW),
            (centre_B, other_BW, inside_BW),
            (centre_B, context_BW, np.zeros_like(inside_BW)),
        )
    )
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert empty[0] == 0 and not any(np.asarray(leaf).any() for leaf in gradients.values())


def test_the_parameters_are_two_tables_the_second_zero(key):
    params = word2vec.init(key, config())
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in params.items()} == {
        name: ((V, D), jnp.float32) for name in ("input", "output")
    }
    assert not params["output"].any() and 0.05 < abs(params["input"]).max() <= 0.1  # 0.5 / D


def test_noise_is_counts_to_the_three_quarters():
    np.testing.assert_allclose(word2vec.noise(np.array([16, 1, 81, 0])), [8 / 36, 1 / 36, 27 / 36, 0], rtol=1e-6)


def test_negatives_are_drawn_from_the_noise(key):
    noise_V = jnp.asarray([0.0, 0.5, 0.0, 0.3, 0.2, 0.0])
    words = np.asarray(word2vec.draw(key, noise_V, (100, 10, 10)))
    assert words.shape == (100, 10, 10) and words.dtype == np.int32
    np.testing.assert_allclose(np.bincount(words.ravel(), minlength=6) / words.size, noise_V, atol=6 * 0.5 / 100)
    assert {*words.ravel().tolist()} == {1, 3, 4}


def test_neighbours_are_by_cosine_and_never_the_word_itself():
    """Words at 0, 10, 80, 90 and 180 degrees, of any length; the first asked for twice."""
    degrees, lengths = np.radians([0, 10, 80, 90, 180]), np.array([1, 100, 0.01, 7, 2])
    table = (np.stack([np.cos(degrees), np.sin(degrees)], 1) * lengths[:, None]).astype(np.float32)
    found = [word2vec.nearest({"input": jnp.asarray(table)}, [word], [1], 3) for word in (0, 3)]
    nearest_BK, cosine_BK = (jnp.stack(column) for column in zip(*found, strict=True))
    assert nearest_BK.tolist() == [[1, 2, 3], [2, 1, 0]]
    np.testing.assert_allclose(cosine_BK[1], np.cos(np.radians([10, 80, 90])), atol=1e-6)
