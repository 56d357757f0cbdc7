"""Gauss-Newton steps: Newton's own where a margin is linear, and never a worse loss on their batch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import tasks, train
from apformer.errors import USAGE, UserError
from apformer.optimizer import gauss_newton
from apformer.runs import fit, limits, recipes

pytestmark = pytest.mark.long

HOME = "--digits 2 --min_difference 20 --max_difference 30 --batch_size 8 --steps 8 --newton_steps 4 --newton_batches 3"
SMALL = f"--recipe smallest {HOME} --members 1 --log_every 2 --save_every 4"


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
    loss = nats_fn(params, batch)[0][:, 0].mean()
    return loss, {"loss": loss}


def newton(w_D, x_BD, y_B, damping):
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
    found_JD = gauss_newton.steps(nats_B, gradient_BD, jnp.full(17, 1 / 17), gradient_BD.mean(0))
    expected_JD = [newton(w_D, x_BD, y_B, damping) for damping in gauss_newton.DAMPINGS]
    np.testing.assert_allclose(found_JD, expected_JD, rtol=1e-3, atol=1e-5)


def test_a_few_steps_end_at_the_minimum_and_none_is_worse():
    x_BD, y_B = two_classes(40)
    batch = tuple(map(jnp.float32, (x_BD, y_B)))
    w_D = np.zeros(3)
    for _ in range(20):
        w_D = w_D + newton(w_D, x_BD, y_B, 0.0)
    step = jax.jit(gauss_newton.make_train_step(nats_fn, loss_fn, 40))
    state = train.TrainState(jnp.int32(0), None, {"w": jnp.zeros(3)}, None, {})
    losses = [np.log(2)]
    for _ in range(6):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    np.testing.assert_allclose(state.params["w"], w_D, rtol=1e-3)
    assert state.step == 6 and (np.diff(losses) <= 1e-6).all() and losses[-1] < 0.8 * losses[0]


def test_where_no_damping_helps_nothing_moves():
    def nonsense(params, batch):
        return jnp.where(params["w"].sum() == 0, nats_fn(params, batch)[0], jnp.nan), nats_fn(params, batch)[1]

    batch = tuple(map(jnp.float32, two_classes(8)))
    state = train.TrainState(jnp.int32(0), None, {"w": jnp.zeros(3)}, None, {})
    state, _ = jax.jit(gauss_newton.make_train_step(nonsense, loss_fn, 8))(state, batch)
    np.testing.assert_array_equal(state.params["w"], np.zeros(3))


def test_rows_count_as_long_as_their_costly_characters_can_be_summed_up():
    """So a step from 5 of 40 rows is the step of the first 5, all of which cost more than a thousandth of a nat."""
    x_BD, y_B = (jnp.float32(leaf) for leaf in two_classes(40))
    state = train.TrainState(jnp.int32(0), None, {"w": jnp.zeros(3)}, None, {})
    few, all_of_few = (
        jax.jit(gauss_newton.make_train_step(nats_fn, loss_fn, 5))(state, batch)[0].params["w"]
        for batch in ((x_BD, y_B), (x_BD[:5], y_B[:5]))
    )
    np.testing.assert_allclose(few, all_of_few, rtol=1e-5)
    assert not np.allclose(
        few, jax.jit(gauss_newton.make_train_step(nats_fn, loss_fn, 40))(state, (x_BD, y_B))[0].params["w"]
    )


def test_joined_batches_are_those_of_several_one_behind_the_other():
    def sample(key):
        return jax.random.normal(key, (5, 2))

    key = jax.random.key(3)
    many = train.several(sample, 3)(key)
    np.testing.assert_array_equal(train.joined(sample, 3)(key), np.concatenate(many))


@pytest.mark.parametrize("batches", [3, 0])
def test_the_last_steps_of_a_run_are_gauss_newton_steps(batches):
    """They leave the state of Adam alone, and a rule has the whole of the steps before to end in."""
    settings = recipes.parse([*SMALL.split(), "--newton_batches", str(batches)])
    rows = tasks.load(settings.task).load(settings)[1]
    state = fit.initial_state(settings)
    with fit.course(settings, rows, state) as (state, advance, measure, _):
        step, moments = 0, []
        while step < 8:
            step, state, metrics = advance(step, state)
            moments.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.opt_state)]))
    assert [np.array_equal(moments[k], moments[k + 1]) for k in range(3)] == [False, True, True]
    assert int(state.step) == 8 and np.isfinite(np.asarray(metrics["loss"])).all()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--newton_steps 3", "--newton_steps 3 begin at step 5, which is no multiple of --log_every 2: give --l"),
        ("--newton_steps 10", "--newton_steps 10 is out of range: give 0 to --steps, 8"),
        ("--newton_batches -1", "--newton_batches -1 is out of range: give 0 to 2147483647"),
        (
            "--newton_batches 0 --window None",
            "--newton_batches 0, every row of training lines, is for a model with a window: give --window",
        ),
        (
            "--newton_batches 0 --digits 4 --min_difference 1 --max_difference 500",
            "--newton_batches 0, every row of training lines, are 4,749,500 rows, more than 1,000,000: give 1 or more",
        ),
        (
            "--newton_batches 0 --min_difference 60 --max_difference 70",
            "--newton_batches 0, every row of training lines, are none: no third term fits these differences",
        ),
        (
            "--newton_batches 0 --dataset rows.txt",
            "--newton_batches 0 sees every row of the generator, not those of --dataset rows.txt: give 1",
        ),
        ("--newton_characters 0", "--newton_characters 0 is out of range"),
        ("--ema 0.9", "--ema 0.9 is no mean of Gauss-Newton steps"),
    ],
)
def test_what_does_not_fit_is_refused(flags, sentence):
    with pytest.raises(UserError) as error:
        recipes.parse([*SMALL.split(), *flags.split()])
    assert str(error.value).startswith(sentence) and error.value.exit_code == USAGE


def test_a_task_without_them_is_refused_with_those_that_have_them():
    settings = recipes.parse(["--recipe", "translate", "--steps", "8"])
    rule = dataclasses.replace(settings.optimizer, newton_steps=4)
    with pytest.raises(UserError, match="--newton_steps is for tasks that say what a character costs, progressions"):
        limits.check(dataclasses.replace(settings, optimizer=rule))
