"""Cross-entropy against its definition, and its gradient against autodiff of that definition."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apformer.loss import cross_entropy, next_token_loss, token_nats
from apformer.tasks.batch import Batch

B, T, V = 3, 5, 7

loss_and_gradient = jax.jit(jax.value_and_grad(cross_entropy))


def naive(logits_BTV, targets_BT, weights_BT):
    """-log(exp(z_target) / sum exp(z)), averaged by weight; overflows for large logits."""
    softmax_BTV = jnp.exp(logits_BTV) / jnp.exp(logits_BTV).sum(-1, keepdims=True)
    chosen_BT = (softmax_BTV * jax.nn.one_hot(targets_BT, V)).sum(-1)
    return -(weights_BT * jnp.log(chosen_BT)).sum() / weights_BT.sum()


naive_loss_and_gradient = jax.jit(jax.value_and_grad(naive))


def example(seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((B, T, V)).astype(np.float32)
    weights = rng.random((B, T)).astype(np.float32)
    return logits, rng.integers(0, V, (B, T)).astype(np.int32), weights


def test_smoothed_labels_by_hand():
    """Logits of ln 1, ln 2 and ln 5, the last the target; a share of 0.3 is spread over all three."""
    logits = jnp.log(jnp.array([[[1.0, 2.0, 5.0]]]))
    targets = jnp.array([[2]])
    weights = jnp.ones((1, 1))
    nats = np.log(8) - 0.7 * np.log(5) - 0.1 * (np.log(1) + np.log(2) + np.log(5))
    np.testing.assert_allclose(token_nats(logits, targets, 0.3), [[nats]], rtol=1e-6)
    np.testing.assert_allclose(cross_entropy(logits, targets, weights, 0.3), nats, rtol=1e-6)


def mean_nats(logits, targets, weights, smoothing):
    return (token_nats(logits, targets, smoothing) * weights).sum() / weights.sum()


gradient_of, by_autodiff = (jax.jit(jax.grad(loss), static_argnums=3) for loss in (cross_entropy, mean_nats))


@given(seed=st.integers(0, 1000), smoothing=st.sampled_from([0.0, 0.1, 0.9]))
def test_the_gradient_of_smoothed_labels_is_that_of_their_nats(seed, smoothing):
    logits, targets, weights = example(seed)

    found, expected = (gradient(logits, targets, weights, smoothing) for gradient in (gradient_of, by_autodiff))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@given(seed=st.integers(0, 1000))
def test_loss_and_gradient_are_those_of_the_definition(seed):
    loss, gradient = loss_and_gradient(*example(seed))
    naive_loss, naive_gradient = naive_loss_and_gradient(*example(seed))
    np.testing.assert_allclose(loss, naive_loss, rtol=1e-5)
    np.testing.assert_allclose(gradient, naive_gradient, atol=1e-6)
    np.testing.assert_allclose(np.asarray(gradient).sum(-1), 0, atol=1e-6)


@given(
    seed=st.integers(0, 1000),
    size=st.sampled_from([1.0, 1e30, float(np.finfo(np.float32).max), np.inf, np.nan]),
    target=st.sampled_from([0, V - 1, V, -100]),
)
def test_a_token_of_weight_zero_changes_nothing(seed, size, target):
    """Bit for bit, whatever its logits and target, outside the vocabulary too; and its own gradient is exactly zero."""
    logits, targets, weights = example(seed)
    weights[0, 2:] = 0
    weights[2] = 0
    idle = weights == 0
    loss, gradient = loss_and_gradient(logits, targets, weights)
    garbage = np.where(idle[:, :, None], np.float32(size) * np.sign(example(seed + 1)[0]), logits)
    other_loss, other_gradient = loss_and_gradient(garbage, np.where(idle, target, targets).astype(np.int32), weights)
    assert np.isfinite(loss)
    np.testing.assert_array_equal(other_loss, loss)
    np.testing.assert_array_equal(other_gradient, gradient)
    assert (np.asarray(gradient)[idle] == 0).all()
    assert (np.asarray(gradient)[~idle] != 0).all()


def test_no_weight_at_all_gives_zero():
    logits, targets, weights = example()
    loss, gradient = loss_and_gradient(logits, targets, np.zeros_like(weights))
    assert loss == 0
    assert (np.asarray(gradient) == 0).all()


def test_large_logits_are_finite():
    """The sure token costs nothing, a token ruled out costs its distance, and gradients are those of a step."""
    size = 1e30
    logits = np.zeros((B, T, V), np.float32)
    logits[:, :, 2] = size
    targets = np.full((B, T), 2, np.int32)
    targets[1] = 4
    loss, gradient = loss_and_gradient(logits, targets, np.ones((B, T), np.float32))
    np.testing.assert_allclose(loss, size / 3, rtol=1e-6)
    expected = np.zeros((B, T, V))
    expected[1, :, 2], expected[1, :, 4] = 1 / 15, -1 / 15
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_bfloat16_logits_are_read_in_float32():
    """Rounding the result of each step to bfloat16 would cost 0.4 %."""
    logits, targets, weights = example()
    half = jnp.asarray(logits, jnp.bfloat16)
    loss, gradient = loss_and_gradient(half, targets, weights)
    expected_loss, expected_gradient = loss_and_gradient(np.asarray(half, np.float32), targets, weights)
    assert loss.dtype == jnp.float32 and gradient.dtype == jnp.bfloat16
    np.testing.assert_array_equal(loss, expected_loss)
    np.testing.assert_array_equal(gradient, expected_gradient.astype(jnp.bfloat16))


def test_next_token_loss_pairs_each_logit_with_the_token_after_it(key):
    """A model that is sure of "token + 1" is right on 2 3 4 and wrong on the last step, 4 6."""
    seen = {}

    def apply(params, tokens_BT, cfg, key):
        seen.update(params=params, tokens_BT=tokens_BT, cfg=cfg, key=key)
        return params * jax.nn.one_hot(tokens_BT + 1, V)

    def measure(logits_BTV, batch):
        return {"predicted": logits_BTV.argmax(-1), "batch": batch}

    batch = Batch(np.array([[2, 3, 4, 6]], np.int32), np.array([[9, 1, 2, 0]], np.float32))
    loss, metrics = next_token_loss(jnp.float32(50), batch, key, "cfg", apply=apply, measure=measure)
    np.testing.assert_array_equal(seen["tokens_BT"], [[2, 3, 4]])
    assert seen["cfg"] == "cfg" and seen["key"] is key
    np.testing.assert_allclose(loss, 0, atol=1e-6)
    assert metrics["loss"] is loss and metrics["batch"] is batch
    np.testing.assert_array_equal(metrics["predicted"], [[3, 4, 5]])

    wrong = batch._replace(weights_BT=np.array([[9, 1, 2, 1]], np.float32))
    loss, metrics = next_token_loss(jnp.float32(50), wrong, key, "cfg", apply=apply)
    np.testing.assert_allclose(loss, 50 / 4, rtol=1e-5)
    assert list(metrics) == ["loss"]
