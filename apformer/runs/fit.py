"""Train from a state to the last step: chunks of compiled steps, with lines of metrics and checkpoints between them.

Chunks end at multiples of log_every, counted from step 0, also in a resumed run. So it calls the same compiled loops on
the same states as an uninterrupted run, and ends with the same bits.
"""

import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer import files, tasks, train
from apformer.runs import checkpoint
from apformer.runs.metrics import Log, finite_mean, read_metrics
from apformer.runs.selection import score, validation


def initial_state(settings, given=None):
    """The state before the first step; with a leading axis of members if there is more than one.

    given: the parameters of the model that training begins with, where the settings name one.
    """
    task = tasks.load(settings.task)
    rule = task.make_optimizer(settings)

    def member(seed):
        params_key, run_key = jax.random.split(jax.random.key(seed))
        params = task.initial_params(params_key, settings, given)
        return train.init_state(run_key, params, rule, settings.optimizer.hyper())

    members = settings.training.members
    states = [member(settings.training.seed + k) for k in range(members)]
    return states[0] if members == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


@partial(jax.jit, static_argnames=("settings", "steps"), donate_argnames="state")
def run_steps(state, train_rows, settings, steps):
    """(state, metrics of each step) after `steps` more steps, on train_rows or, for None, on fresh rows."""
    task = tasks.load(settings.task)
    rule = task.make_optimizer(settings)
    step = train.make_train_step(_make_loss(settings), rule, task.accumulate(settings))
    chunk = train.scan_steps(step, lambda key: task.sample(key, settings, train_rows), steps)
    return _lift(chunk, settings)(state)


@partial(jax.jit, static_argnames="settings")
def validate(params, batch, settings):
    """Metrics of the validation batch, without dropout."""
    loss_fn = _make_loss(settings)
    return _lift(lambda params: loss_fn(params, batch, None)[1], settings)(params)


def _make_loss(settings):
    """The task's loss, of what the state holds as parameters."""
    task = tasks.load(settings.task)
    loss_fn = task.make_loss(settings)
    return lambda params, batch, key: loss_fn(task.whole(params, settings), batch, key)


def _lift(function, settings):
    """The function of one model, or of each member of a population."""
    if settings.training.members == 1:
        return function
    mode = settings.training.member_mode
    if mode == "auto":
        mode = "map" if jax.default_backend() == "cpu" else "vmap"
    return train.over_members(function, mode)


def validation_loss(settings, rows, state):
    """The loss of each member on the validation rows, as numpy: what `fit` measures at a checkpoint."""
    batch = tasks.load(settings.task).validation(settings, rows)
    return np.asarray(validate(state.params, batch, _program(settings))["loss"])


def fit(path, settings, rows, state):
    """The state after the last step; on the way it fills metrics.jsonl and checkpoints/ of the run directory `path`.

    The state given is donated. SIGINT or SIGTERM exits after a chunk and a checkpoint, with 128 + its number.
    Raises UserError: NON_FINITE as soon as no member's loss is finite, DISK if something cannot be written.
    """
    run, task, program = settings.training, tasks.load(settings.task), _program(settings)
    train_rows, batch = task.train_rows(rows), task.validation(settings, rows)
    step = int(np.max(state.step))
    log = Log(path / "metrics.jsonl", settings, step, jax.device_get(state.hyper["learning_rate"]))
    with checkpoint.Checkpoints(path / "checkpoints", run.keep) as checkpoints, stop_signals() as stopped, log:
        while step < run.steps and not (run.patience and _stale(path) >= run.patience):
            until = min(run.steps, step - step % run.log_every + run.log_every)
            state, metrics = run_steps(state, train_rows, program, until - step)
            step = until
            # The line of the chunk before: reading this one's metrics now would stall the device.
            log.flush()
            log.hold(step, metrics)
            on_schedule = step % run.save_every == 0 or step == run.steps
            if on_schedule or stopped:
                if on_schedule:
                    log.hold(step, metrics, jax.device_get(validate(state.params, batch, program)))
                record = log.flush()
                files.fsync(log.path)  # so that no checkpoint outlives its line
                scores = score(validation(record)) if on_schedule else record["loss"]
                checkpoints.save(step, state, scores, temporary=not on_schedule)
            if stopped:
                checkpoints.close()
                print(f"stopped at step {step:,} and saved: `apformer resume {path}` goes on", file=sys.stderr)
                sys.exit(128 + stopped[0])
    return state


def _stale(path):
    """How many checkpoints there are since the best; by metrics.jsonl, so that a resumed run stops at the same."""
    records = read_metrics(path) if (path / "metrics.jsonl").exists() else []
    scores = [finite_mean(score(found)) for record in records if (found := validation(record))]
    return len(scores) - 1 - int(np.argmin(scores)) if scores else 0


def _program(settings):
    """The settings without those that change no compiled program, so that runs of other seeds compile nothing anew."""
    training = ("recipe", "seed", "keep", "average", "save_every", "patience", "run_dir")
    parts = {"training": training} | tasks.load(settings.task).NOT_COMPILED
    return replace(settings, **{part: _usual(getattr(settings, part), names) for part, names in parts.items()})


def _usual(part, names):
    """A part of the settings with the defaults of these fields."""
    return replace(part, **{name: getattr(type(part)(), name) for name in names})


@contextmanager
def stop_signals():
    """A list that receives SIGINT or SIGTERM, so that what runs on the device is finished and saved before the stop.

    A second signal stops at once.
    """
    received = []

    def receive(number, _):
        if received:
            sys.exit(128 + number)
        received.append(number)
        print("stopping after these steps; once more to stop at once", file=sys.stderr)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
