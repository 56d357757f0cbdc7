"""`--accumulate` and `--remat` do for every task what they say: several batches a step, and less memory."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import tasks, train
from apformer.errors import UserError
from apformer.runs import fit, recipes, settings_file

pytestmark = pytest.mark.long

SMALL = "--steps 1 --log_every 1 --save_every 1 --batch_size 4"
MODEL = "--d_model 16 --n_heads 2 --d_ff 16 --n_layers 1 --rule adamw"
HOME = f"--digits 2 --min_difference 20 --max_difference 30 {MODEL} --prefix_rows 4 --hard_fraction 0.5"
RECIPES = {
    "exact": HOME,
    "recurrent": "--digits 2 --d_model 8 --hard_fraction 0",
    "words": "--d_model 8",
}


def settings_of(recipe, *words):
    settings = recipes.parse(["--recipe", recipe, *RECIPES[recipe].split(), *SMALL.split(), *words])
    return tasks.load(settings.task).load(settings)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_step_costs_the_mean_of_its_batches(recipe):
    settings, rows = settings_of(recipe, "--accumulate", "3")
    task = tasks.load(settings.task)
    state, given = fit.initial_state(settings), task.train_rows(rows)
    key, batch_key = train.step_keys(state)
    loss_fn, sample = task.make_loss(settings), jax.jit(task.sample, static_argnums=1)
    measure = jax.jit(lambda batch, key: loss_fn(state.params, batch, key)[1]["loss"])
    keys = zip(jax.random.split(batch_key, 3), jax.random.split(key, 3), strict=True)
    losses = [float(measure(sample(drawn, settings, given), key)) for drawn, key in keys]
    _, metrics = fit.run_steps(state, given, settings, 1)
    assert len({*losses}) > 1
    assert float(metrics["loss"][0]) == pytest.approx(np.mean(losses), rel=1e-5)


def test_rematerialised_blocks_make_the_same_step():
    settings, rows = settings_of("exact", *"--n_layers 2 --prefix_rows 0 --hard_fraction 0".split())
    other = replace(settings, training=replace(settings.training, remat=True))
    given = tasks.load(settings.task).train_rows(rows)
    states = [fit.run_steps(fit.initial_state(settings), given, each, 1)[0] for each in (settings, other)]
    for ours, theirs in zip(*(jax.tree.leaves(state.opt_state) for state in states), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("recipe", ("recurrent", "words"))
def test_what_has_no_blocks_is_not_rematerialised(recipe):
    settings, _ = settings_of(recipe)
    with pytest.raises(UserError, match="--remat is for transformers: drop it"):
        settings_file.check(replace(settings, training=replace(settings.training, remat=True)))
