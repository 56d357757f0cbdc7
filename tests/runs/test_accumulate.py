"""`--accumulate` makes a step of several batches."""

import jax
import numpy as np
import pytest

from apformer import tasks, train
from apformer.runs import fit, recipes

pytestmark = pytest.mark.long

SMALL = "--steps 1 --log_every 1 --save_every 1 --batch_size 4"
MODEL = "--d_model 16 --n_heads 2 --d_ff 16 --n_layers 1 --rule adamw"
HOME = f"--digits 2 --min_difference 20 --max_difference 30 {MODEL} --prefix_rows 0 --hard_fraction 0 --ema 0"


def test_a_step_costs_the_mean_of_its_batches():
    settings = recipes.parse([*HOME.split(), *SMALL.split(), "--accumulate", "3"])
    task = tasks.load(settings.task)
    settings, rows = task.load(settings)
    state, given = fit.initial_state(settings), task.train_rows(rows)
    key, batch_key = train.keys_of(state.key, state.step)
    loss_fn, sample = task.make_loss(settings), jax.jit(task.sample, static_argnums=1)
    measure = jax.jit(lambda batch, key: loss_fn(state.params, batch, key)[1]["loss"])
    keys = zip(jax.random.split(batch_key, 3), jax.random.split(key, 3), strict=True)
    losses = [float(measure(sample(drawn, settings, given), key)) for drawn, key in keys]
    _, metrics = fit.run_steps(state, given, settings, 1)
    assert len({*losses}) > 1
    assert float(metrics["loss"][0]) == pytest.approx(np.mean(losses), rel=1e-5)
