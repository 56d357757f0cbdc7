"""A training step is a pure function of its state: scanned, mapped over members or resumed, it does the same.

The training loop knows no model, so most of these train a small network of their own, with dropout.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model, optimizer, train
from apformer.runs import fit
from apformer.settings import Settings, Training
from apformer.tasks.progressions import Options, generator, training
from tests.helpers.small_models import bits

CFG = optimizer.Config(learning_rate=0.01, warmup_steps=2, weight_decay=0.1)
RULE = optimizer.make(CFG, steps=12)
DATA = generator.Config(digits=2, max_difference=20)


def settings_of(training):
    return Settings("progressions", "model", training, model.Config(d_model=24), DATA, Options())


HOME = settings_of(Training(steps=12, batch_size=4))


def loss_fn(params, batch, key, kept=0.75):
    x_BD, y_B = batch
    hidden_BF = jnp.tanh(x_BD @ params["expand"]["weight"] + params["expand"]["bias"][None])
    hidden_BF = jnp.where(jax.random.bernoulli(key, kept, hidden_BF.shape), hidden_BF / kept, 0.0)
    loss = jnp.mean((hidden_BF @ params["contract"]["weight"] - y_B) ** 2)
    return loss, {"loss": loss}


def sample(key):
    x_BD = jax.random.normal(key, (5, 3))
    return x_BD, jnp.sin(x_BD.sum(1))


STEP = train.make_train_step(loss_fn, RULE)
init, draw = jax.jit(model.init, static_argnums=1), jax.jit(training.sample, static_argnums=1)


def start(seed=0, rate=0.01, rule=RULE, ema=0.0):
    keys = jax.random.split(jax.random.key(seed))
    expand = {"weight": jax.random.normal(keys[0], (3, 7)), "bias": jnp.zeros(7)}
    params = {"expand": expand, "contract": {"weight": jax.random.normal(keys[1], (7,))}}
    hyper = CFG.hyper() | {"learning_rate": jnp.float32(rate)}
    return train.init_state(jax.random.key(100 + seed), params, rule, hyper, ema)


@pytest.fixture(scope="module")
def four_steps():
    return jax.jit(train.scan_steps(STEP, sample, 4))


def stack(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def member(tree, k):
    return jax.tree.map(lambda leaf: leaf[k], tree)


def test_a_scan_of_steps_equals_single_steps(four_steps):
    single = jax.jit(lambda state: STEP(state, sample(train.keys_of(state.key, state.step)[1])))
    scanned, metrics = four_steps(start())
    state = start()
    losses = []
    for _ in range(4):
        state, step_metrics = single(state)
        losses.append(step_metrics["loss"])
    # Not bit for bit: outside a loop XLA may fuse otherwise. What runs on must call the same loops (runs/fit.py).
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), scanned.params, state.params)
    np.testing.assert_allclose(metrics["loss"], jnp.stack(losses), rtol=1e-5)
    assert scanned.step == state.step == 4 and bits(scanned.key) == bits(state.key)


def test_the_running_mean_is_that_of_the_parameters_of_each_step():
    ema, state = 0.3, start(ema=0.3)
    train_step = train.make_train_step(loss_fn, RULE, ema=ema)
    step = jax.jit(lambda state: train_step(state, sample(state.key))[0])
    mean = jax.tree.map(np.float64, state.params)
    for t in range(5):
        state = step(state)
        decay = min(ema, (1 + t) / (10 + t))  # which is 1 / 10 at first, and then 0.3
        mean = jax.tree.map(lambda old, new, d=decay: d * old + (1 - d) * np.float64(new), mean, state.params)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), train.trained(state), mean)
    without = start()
    assert train.trained(without) is without.params and without.mean is None


def test_mapped_members_are_bit_equal_to_runs_alone_and_vmapped_ones_are_close(four_steps):
    states = [start(0), start(1, rate=0.003)]
    chunk = train.scan_steps(STEP, sample, 4)
    mapped, vmapped = (jax.jit(train.over_members(chunk, mode))(stack(*states)) for mode in ("map", "vmap"))
    for k, state in enumerate(states):
        alone = four_steps(state)
        assert bits(member(mapped, k)) == bits(alone)
        close = member(vmapped, k)
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), close[0].params, alone[0].params)
        assert bits(close[0].key) == bits(alone[0].key)


def test_keys_of_a_step_depend_on_seed_and_step_alone():
    later = start()._replace(step=jnp.int32(5))
    elsewhere = start(1)._replace(key=start().key, step=jnp.int32(5))
    assert bits(train.keys_of(later.key, later.step)) == bits(train.keys_of(elsewhere.key, elsewhere.step))
    keys = [bits(train.keys_of(state.key, state.step)[use]) for state in (start(), later, start(1)) for use in (0, 1)]
    assert len({*map(str, keys)}) == 6  # dropout and batch, of two steps and two seeds


def test_the_state_of_a_population_is_that_of_its_seeds():
    population = fit.initial_state(settings_of(Training(seed=7, members=2)))
    for k in range(2):
        assert bits(member(population, k)) == bits(fit.initial_state(settings_of(Training(seed=7 + k))))


def test_bfloat16_halves_the_bits_of_the_computation_and_not_of_the_parameters():
    params, batch = init(jax.random.key(0), HOME.model), draw(jax.random.key(0), HOME)
    half = settings_of(Training(compute_dtype="bfloat16"))
    with jax.numpy_dtype_promotion("standard"):
        half_loss, loss = (jax.jit(training.make_loss(settings))(params, batch, None)[0] for settings in (half, HOME))
        gradients = jax.eval_shape(lambda: jax.grad(training.make_loss(half), has_aux=True)(params, batch, None)[0])
    assert {leaf.dtype for leaf in jax.tree.leaves(gradients)} == {jnp.dtype("float32")}
    assert half_loss != loss and abs(half_loss - loss) < 0.1


def test_the_mean_of_batches_is_that_of_all_their_rows():
    """Six rows, in batches of three or of one: the same step to rounding, without dropout."""

    x_BD = jax.random.normal(jax.random.key(2), (6, 3))
    batch = (x_BD, jnp.sin(x_BD.sum(1)))
    after = {}
    for count in (1, 2, 6):
        step = jax.jit(train.make_train_step(partial(loss_fn, kept=1.0), RULE, accumulate=count))
        shape = (count, 6 // count) if count > 1 else (6,)
        batches = jax.tree.map(lambda leaf, shape=shape: leaf.reshape(*shape, *leaf.shape[1:]), batch)
        state, after[count] = step(start(), batches)
        after[count] |= {"params": state.params}
    for count in (2, 6):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), after[count], after[1])


def test_a_switch_is_the_branch_and_its_gradient_too():
    """Bit for bit, whichever branch."""
    branches = [loss_fn, lambda params, batch, key: loss_fn(jax.tree.map(jnp.sin, params), batch, key)]
    switch = jax.jit(jax.value_and_grad(train.switch(branches), has_aux=True))
    params = start().params
    key = jax.random.key(5)
    for which, branch in enumerate(branches):
        alone = jax.jit(jax.value_and_grad(branch, has_aux=True))(params, sample(key), key)
        assert bits(switch(params, (jnp.int32(which), sample(key)), key)) == bits(alone)
