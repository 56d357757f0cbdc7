"""Train from a state to the last step: chunks of compiled steps, with lines of metrics and checkpoints between them.

Chunks end at multiples of log_every, counted from step 0, also in a resumed run. So this calls the same compiled loops
on the same states as an uninterrupted run, and ends with the same bits.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from apformer import files, plugins, tasks, train
from apformer.errors import tell, typed
from apformer.machine import devices, process, processes
from apformer.runs import selection
from apformer.runs.checkpoint import Checkpoints
from apformer.runs.feed import pieces
from apformer.runs.metrics import Log, first_lost, read_metrics, read_missed, stale
from apformer.settings import Settings, Training, with_part
from apformer.train import TrainState

Metrics = dict[str, Any]  # {name: array}, with a leading axis of members if there are several


def initial_state(settings: Settings, start_params: Any = None, hypers: Sequence[dict] = ()) -> TrainState:
    """Return the state before the first step, with a leading axis of members if there are several.

    start_params: parameters to begin with, or None. hypers: of a sweep, the hyperparameters of each combination.
    """
    program = _compiled_settings(settings)
    own = settings.optimizer.hyper()
    initial = _compiled_initial()
    seeds = range(settings.training.seed, settings.training.seed + settings.training.members)
    states = [initial(seed, hyper, start_params, program) for hyper in hypers or [own] for seed in seeds]
    return states[0] if len(states) == 1 else _stack(states)


def abstract_state(settings: Settings) -> TrainState:
    """Return the shapes and dtypes of `initial_state(settings)`, as `jax.eval_shape` does, without computing it."""
    program, hyper, members = _compiled_settings(settings), settings.optimizer.hyper(), settings.training.members
    member = jax.eval_shape(partial(_initial, settings=program), settings.training.seed, hyper, None)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((members,) * (members > 1) + leaf.shape, leaf.dtype), member)


@cache
def _compiled_initial() -> Callable[..., TrainState]:
    """Return `_initial`, compiled once for all members.

    On a CPU it is compiled at LLVM's first level of optimisation, in a third of the time, since it runs once.
    """
    options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
    return jax.jit(_initial, static_argnames="settings", compiler_options=options)


def _initial(seed: jax.Array, hyper: dict, start_params: Any, settings: Settings) -> TrainState:
    """Return the state of one member."""
    task = tasks.of(settings)
    params_key, run_key = jax.random.split(jax.random.key(seed))
    params = task.initial_params(params_key, settings, start_params)
    return train.init_state(run_key, params, task.make_optimizer(settings), hyper, settings.training.ema)


@jax.jit
def _stack(states: list[TrainState]) -> TrainState:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def run_steps(
    state: TrainState, train_rows: Any, settings: Settings, steps: int, mesh: Mesh | None = None, fed: Any = None
) -> tuple[TrainState, Metrics]:
    """Return (state, metrics of each step) after `steps` more steps. The argument `state` is donated.

    Args:
        state: State of one model or of a population.
        train_rows: Result of the task's `train_rows`.
        settings: Settings of the run.
        steps: Number of steps.
        mesh: Mesh that holds the state, see `devices.mesh`.
        fed: Rows of each step, instead of `train_rows`; their first axes are members, if there are several, then steps.
    """
    return _of_members(
        lambda args, mesh: _run_steps(*args, train_rows, settings, steps, mesh), (state, fed), settings, mesh
    )


def validate(params: Any, batch: Any, settings: Settings, mesh: Mesh | None = None) -> Metrics:
    """Return metrics of the validation batch, without dropout."""
    return _of_members(lambda params, mesh: _validate(params, batch, settings, mesh), params, settings, mesh)


@partial(jax.jit, static_argnames=("settings", "steps", "mesh"), donate_argnames="state")
def _run_steps(
    state: TrainState, fed: Any, train_rows: Any, settings: Settings, steps: int, mesh: Mesh | None
) -> tuple[TrainState, Metrics]:
    task = tasks.of(settings)
    loss_fn, count = _make_loss(settings, mesh), settings.training.accumulate

    def sample(key: jax.Array, fed: Any) -> Any:
        return task.sample(key, settings, train_rows if fed is None else fed)

    step = train.make_train_step(loss_fn, task.make_optimizer(settings), count, settings.training.ema)
    step = task.train_step(settings, loss_fn, step) if hasattr(task, "train_step") else step
    chunk = train.scan_steps(step, train.sample_batches(sample, count), steps)
    return devices.hold(_lift(chunk, settings)(state, fed), mesh, settings.training.members)


def _run_pieces(
    state: TrainState,
    train_rows: Any,
    settings: Settings,
    pieces: Iterator[tuple[int, Any]],
    steps: int,
    mesh: Mesh | None,
) -> tuple[TrainState, Metrics]:
    """Return (state, metrics of each step) after the pieces of `steps` more steps, see `feed.pieces`."""
    chunks = []
    while steps:
        count, fed = next(pieces)
        steps -= count
        jax.block_until_ready(chunks[-2:-1])  # so that no more than two pieces wait for the device
        state, metrics = run_steps(state, train_rows, settings, count, mesh, fed)
        chunks.append(metrics)
    return state, jax.tree.map(lambda *leaves: jnp.concatenate(leaves, -1), *chunks)


@partial(jax.jit, static_argnames=("settings", "mesh"))
def _validate(params: Any, batch: Any, settings: Settings, mesh: Mesh | None) -> Metrics:
    loss_fn = _make_loss(settings, mesh)
    metrics = _lift(lambda params: loss_fn(params, batch, None)[1], settings)(params)
    return devices.hold(metrics, mesh, settings.training.members)


def _make_loss(settings: Settings, mesh: Mesh | None) -> Callable[[Any, Any, Any], tuple[jax.Array, Metrics]]:
    """Return the task's loss, a function of (params, batch, key). With a key, the batch is spread over devices."""
    task = tasks.of(settings)
    loss_fn = task.make_loss(settings)

    def spread_loss(params: Any, batch: Any, key: jax.Array | None) -> tuple[jax.Array, Metrics]:
        batch = batch if key is None else devices.spread(batch, mesh)
        found = loss_fn(task.model_params(params, settings), batch, key)
        match jax.tree.map(jnp.ndim, found):
            case 0, {"loss": 0}:
                return found
        raise plugins.fault(tasks.GROUP, settings.task, 'whose loss gives no (loss, {"loss": loss, ...})')

    return spread_loss


def _of_members(function: Callable, tree: Any, settings: Settings, mesh: Mesh | None) -> Any:
    """Return function(tree, mesh), called for each group of members on its own devices where members are mapped."""
    if mesh is None or settings.training.members == 1 or _mode(settings) == "vmap":
        return function(tree, mesh)
    return devices.each_group(function, tree, mesh)


def _lift(function: Callable, settings: Settings) -> Callable:
    """Return the function, lifted to all members of a population if there are several."""
    if settings.training.members == 1:
        return function
    return train.over_members(function, _mode(settings))


def _mode(settings: Settings) -> str:
    default = "map" if jax.default_backend() == "cpu" else "vmap"
    return default if settings.training.member_mode == "auto" else settings.training.member_mode


def validation_loss(settings: Settings, rows: Any, state: TrainState) -> np.ndarray:
    """Return the loss of each member on the validation rows, which `fit` measures at each checkpoint."""
    batch = tasks.of(settings).validation(settings, rows)
    return np.asarray(validate(train.trained(state), batch, _compiled_settings(settings))["loss"])


def fit(
    path: Path, settings: Settings, rows: Any, state: TrainState, proven: Callable[[int], bool] | None = None
) -> TrainState:
    """Train to the last step and return the state; write metrics.jsonl and checkpoints/ of the run directory.

    A stop signal saves a checkpoint after the chunk, then exits with 128 + its number.

    Args:
        path: Run directory.
        settings: Its settings.
        rows: Rows of the run, as the task's `load` returns them.
        state: State to train from; it is donated.
        proven: Function of a step that returns whether its checkpoint is certified, which ends training and makes it
            the best of the run. With None, training goes on to the last step.

    Raises:
        UserError: NON_FINITE as soon as no member's loss is finite, DISK if something cannot be written.
    """
    run = settings.training
    task = tasks.of(settings)
    program = _compiled_settings(settings)
    step = int(np.max(state.step))
    sampled_rows = None
    train_rows, batch = task.train_rows(rows), task.validation(settings, rows)
    log = Log(path / "metrics.jsonl", settings, step, state.hyper["learning_rate"])
    mesh = devices.mesh(run.members, run.batch_size)
    if lost := first_lost(read_metrics(path), run.log_every, step):
        tell(f"{log.path} has lost lines, the first of step {lost}: {selection.remedy(path, lost)}")
    feeding = pieces(task.feed(settings, rows), state.key, run, step, mesh)
    devices.connect(mesh)
    state = devices.place(state, mesh, run.members)
    with (
        log,  # whose tracker may ask for a password
        process.deferred() as received,
        Checkpoints(path / "checkpoints", run.keep) as checkpoints,
    ):

        def signalled() -> int:
            return processes.most(max(received, default=0))

        while True:
            scheduled = on_schedule(step, run)
            if scheduled and proven is not None:
                ended = processes.most(jax.process_index() == 0 and _ends(checkpoints, step, proven))
                if (stopped := signalled()) and step:
                    _stop(path, step, checkpoints, stopped)
                if ended:
                    break
            if step >= run.steps:
                break
            if run.patience and stale(path) >= run.patience:
                tell(f"step {step:,}: no better checkpoint in the last {run.patience}: --patience ends training")
                break
            if scheduled or sampled_rows is None:
                sampled_rows = _with_missed(path, settings, train_rows)
            until = min(run.steps, step - step % run.log_every + run.log_every)
            state, metrics = _run_pieces(state, sampled_rows, program, feeding, until - step, mesh)
            step = until
            metrics = devices.readable(metrics, mesh)
            measured = None
            stopped, scheduled = signalled(), on_schedule(step, run)
            # The line of the chunk before: reading this one's metrics now would stall the device.
            log.flush()
            if scheduled:
                measured = validate(train.trained(state), batch, program, mesh)
                measured = jax.device_get(devices.readable(measured, mesh))
            log.pending = step, metrics, measured
            if scheduled or stopped:
                record = log.flush()
                files.fsync(log.path)  # so that no checkpoint outlives its line
                readable_state = devices.readable(state, mesh)
                if jax.process_index() == 0:
                    scores = selection.score(record) if scheduled else record["loss"]
                    checkpoints.save(step, readable_state, scores, temporary=not scheduled)
                if stopped := signalled():  # perhaps while it was saved
                    _stop(path, step, checkpoints, stopped)
    state = devices.readable(state, mesh)
    processes.part()
    return state


def _with_missed(path: Path, settings: Settings, train_rows: Any) -> Any:
    """Return the training rows with the contexts in missed.jsonl, if the task can train on them."""
    missed = getattr(tasks.of(settings), "missed", None)
    if missed is None or settings.training.until != "certified":
        return train_rows
    return missed(settings, train_rows, processes.of_first(read_missed(path) if jax.process_index() == 0 else None))


def on_schedule(step: int, run: Training) -> bool:
    """Return whether a checkpoint of this step is due by training.save_every."""
    return step == run.steps or step % (-(-run.save_every // run.log_every) * run.log_every) == 0


def _stop(path: Path, step: int, checkpoints: Checkpoints, number: int) -> NoReturn:
    """Wait for the checkpoint to be on the disk, then exit with 128 + the number of the signal."""
    processes.part()
    checkpoints.wait()
    tell(f"stopped at step {step:,} and saved: {typed('resume', path)} continues")
    sys.exit(128 + number)


def _ends(checkpoints: Checkpoints, step: int, proven: Callable[[int], bool]) -> bool:
    """Return whether the checkpoint of a step is certified, which ends training; give it the best score if so."""
    checkpoints.wait()
    if step not in selection.scheduled(checkpoints.facts):
        return False
    if checkpoints.facts[step].scores != [selection.PROVEN]:
        if not proven(step):
            return False
        checkpoints.set_proven(step)
    return True


def _compiled_settings(settings: Settings) -> Settings:
    """Return the settings that decide the compiled program, the others at their defaults: the key of the jit cache."""
    training = ("recipe", "until", "keep", "average", "save_every", "patience", "log_to", "run_dir")
    for name, fields in (("training", training), *tasks.of(settings).NOT_COMPILED.items()):
        part = getattr(settings, name)
        settings = with_part(settings, name, **{field: getattr(type(part)(), field) for field in fields})
    return settings
