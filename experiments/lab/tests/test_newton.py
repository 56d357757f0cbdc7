"""Gauss-Newton steps: Newton's own where a margin is linear, and never a worse loss on their batch."""

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss, train
from apformer_lab import newton

START = train.TrainState(jnp.int32(0), None, {"w": jnp.zeros(3)}, None, {})


def two_classes(rows, seed=0):
    """Rows of features, and +1 or -1, which no plane separates."""
    rng = np.random.default_rng(seed)
    x_BD = rng.standard_normal((rows, 3))
    return x_BD, np.where(x_BD @ [1.0, -2.0, 0.5] + rng.standard_normal(rows) > 0, 1.0, -1.0)


def nats_fn(params, batch):
    """log(1 + e^-m) of the margin m = y x.w; of a second character that does not count, infinity."""
    x_BD, y_B = batch
    nats_B = jax.nn.softplus(-y_B * (x_BD @ params["w"]))
    return jnp.stack([nats_B, jnp.full_like(nats_B, jnp.inf)], 1), jnp.asarray([[1.0, 0.0]] * len(y_B))


def loss_fn(params, batch, key):
    mean = nats_fn(params, batch)[0][:, 0].mean()
    return mean, {"loss": mean}


def damped(w_D, x_BD, y_B, damping):
    """A damped step of Newton's method in float64, by the derivatives of the logistic loss."""
    p_B = 1 / (1 + np.exp(-y_B * (x_BD @ w_D)))
    gradient_D = -((1 - p_B) * y_B) @ x_BD / len(y_B)
    H_DD = (x_BD * (p_B * (1 - p_B))[:, None]).T @ x_BD / len(y_B)
    return -np.linalg.solve(H_DD + damping * np.diag(np.diag(H_DD)), gradient_D)


def test_a_step_is_newtons_where_the_margin_is_linear():
    x_BD, y_B = two_classes(17)
    w_D = np.array([0.3, -0.2, 0.1])
    batch = tuple(map(jnp.float32, (x_BD, y_B)))
    nats_B = nats_fn({"w": jnp.float32(w_D)}, batch)[0][:, 0]
    gradient_BD = jax.jacobian(lambda w: nats_fn({"w": w}, batch)[0][:, 0])(jnp.float32(w_D))
    found_JD = newton.steps(nats_B, gradient_BD, jnp.full(17, 1 / 17), gradient_BD.mean(0))
    expected_JD = [damped(w_D, x_BD, y_B, damping) for damping in newton.DAMPINGS]
    np.testing.assert_allclose(found_JD, expected_JD, rtol=1e-3, atol=1e-5)


def test_a_few_steps_end_at_the_minimum_and_none_is_worse():
    x_BD, y_B = two_classes(40)
    batch = tuple(map(jnp.float32, (x_BD, y_B)))
    w_D = np.zeros(3)
    for _ in range(20):
        w_D = w_D + damped(w_D, x_BD, y_B, 0.0)
    step = jax.jit(newton.make_train_step(nats_fn, loss_fn, 40))
    state, losses = START, [np.log(2)]
    for _ in range(6):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    np.testing.assert_allclose(state.params["w"], w_D, rtol=1e-3)
    assert state.step == 6 and (np.diff(losses) <= 1e-6).all() and losses[-1] < 0.8 * losses[0]


def test_where_no_damping_helps_nothing_moves():
    def nonsense(params, batch):
        return jnp.where(params["w"].sum() == 0, nats_fn(params, batch)[0], jnp.nan), nats_fn(params, batch)[1]

    batch = tuple(map(jnp.float32, two_classes(8)))
    state, _ = jax.jit(newton.make_train_step(nonsense, loss_fn, 8))(START, batch)
    np.testing.assert_array_equal(state.params["w"], np.zeros(3))


def test_rows_count_as_long_as_their_costly_characters_can_be_summed_up():
    """So a step from 5 of 40 rows is the step of the first 5, all of which cost more than a thousandth of a nat."""
    x_BD, y_B = (jnp.float32(leaf) for leaf in two_classes(40))
    few, all_of_few = (
        jax.jit(newton.make_train_step(nats_fn, loss_fn, 5))(START, batch)[0].params["w"]
        for batch in ((x_BD, y_B), (x_BD[:5], y_B[:5]))
    )
    np.testing.assert_allclose(few, all_of_few, rtol=1e-5)
    assert not np.allclose(
        few, jax.jit(newton.make_train_step(nats_fn, loss_fn, 40))(START, (x_BD, y_B))[0].params["w"]
    )


def test_small_nats_keep_their_digits():
    """The nats of a margin m are log(1 + e^-m), and their gradient is 1 / (1 + e^m), where token_nats says 0."""
    margin_BT = jnp.array([[-3.0, 0.5, 8.0, 40.0]])
    logits, targets = jnp.stack([jnp.full((1, 4), 5e4), 5e4 + margin_BT], -1), jnp.ones((1, 4), jnp.int32)
    gradient = jax.grad(lambda logits: newton.small_nats(logits, targets).sum())(logits)
    np.testing.assert_allclose(newton.small_nats(logits, targets), np.logaddexp(0, -np.float64(margin_BT)), rtol=1e-6)
    np.testing.assert_allclose(gradient[..., 0], 1 / (1 + np.exp(np.float64(margin_BT))), rtol=1e-6)
    assert loss.token_nats(logits, targets)[0, 3] == 0
