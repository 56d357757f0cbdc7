"""Train from a state to the last step: chunks of compiled steps, with lines of metrics and checkpoints between them.

Chunks end at multiples of log_every, counted from step 0, also in a resumed run. So it calls the same compiled loops on
the same states as an uninterrupted run, and ends with the same bits.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from apformer import files, tasks, train
from apformer.errors import tell, typed
from apformer.machine import devices, process, processes
from apformer.runs import provenance, selection, settings_file
from apformer.runs.checkpoint import Checkpoints
from apformer.runs.feed import Feeding
from apformer.runs.metrics import Log, first_lost, read_metrics, read_missed, stale
from apformer.runs.selection import PROVEN, score
from apformer.settings import Settings, Training
from apformer.train import TrainState

Metrics = dict[str, Any]  # of arrays, each with an axis of members in front if there are several


def begin(path: Path, settings: Settings, rows: Any, given: Any = None) -> None:
    """Write config.json of a new run, and the files of its task. given: as `initial_state` takes it."""
    task = tasks.load(settings.task)
    data = task.describe(settings, rows)
    processes.agree("data", data)
    here = Path.cwd()
    config = settings_file.to_dict(settings) | {
        "versions": provenance.versions(),
        "environment": provenance.environment(),
        "directory": [str(here), os.path.relpath(here, path)],  # of the paths among the flags
        "data": data,
    }
    if given is not None:
        config["init_from_sha256"] = provenance.digest(given)
    files.write_json(path / "config.json", config)
    for name, text in task.files(rows).items():
        files.write_text(path / name, text)
    run, params = settings.training, abstract_state(settings).params

    def counted(part: Any) -> str:
        return f"{sum(leaf.size for leaf in jax.tree.leaves(part)) // run.members:,}"

    told = f"{counted(params)} parameters"
    if hasattr(task, "adapters") and task.adapters(settings):
        told = f"{counted(params['adapters'])} of {told} trained"
    tell(f"{path}: {told}, {run.steps:,} steps")


def initial_state(settings: Settings, given: Any = None) -> TrainState:
    """Return the state before the first step; with a leading axis of members if there is more than one.

    given: the parameters of the model that training begins with, where the settings name one.
    """
    program, hyper, members = _program(settings), settings.optimizer.hyper(), settings.training.members
    states = [_compiled_initial()(settings.training.seed + k, hyper, given, program) for k in range(members)]
    return states[0] if members == 1 else _stack(states)


def abstract_state(settings: Settings) -> TrainState:
    """Return the shapes and dtypes of `initial_state(settings)`, as `jax.eval_shape` does: nothing is computed."""
    program, hyper, members = _program(settings), settings.optimizer.hyper(), settings.training.members
    one = jax.eval_shape(partial(_initial, settings=program), settings.training.seed, hyper, None)
    several = [members] if members > 1 else []
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*several, *leaf.shape), leaf.dtype), one)


@cache
def _compiled_initial() -> Callable[..., TrainState]:
    """Return `_initial`, compiled once for all members.

    On a CPU with LLVM's first level of optimisation: it runs once, and compiles in a third of the time.
    """
    options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
    return jax.jit(_initial, static_argnames="settings", compiler_options=options)


def _initial(seed: jax.Array, hyper: dict, given: Any, settings: Settings) -> TrainState:
    """Return the state of one member."""
    task = tasks.load(settings.task)
    params_key, run_key = jax.random.split(jax.random.key(seed))
    params = task.initial_params(params_key, settings, given)
    return train.init_state(run_key, params, task.make_optimizer(settings), hyper, settings.training.ema)


@jax.jit
def _stack(states: list[TrainState]) -> TrainState:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def run_steps(
    state: TrainState, train_rows: Any, settings: Settings, steps: int, mesh: Mesh | None = None, fed: Any = None
) -> tuple[TrainState, Metrics]:
    """Return (state, metrics of each step) after `steps` more steps, on what the task's `train_rows` gives.

    mesh: devices.mesh, on which the state lies. The state given is donated. fed: what `sample` is handed instead of
    train_rows, with an axis of steps, and that of members in front.
    """
    return _of_members(
        lambda given, mesh: _run_steps(*given, train_rows, settings, steps, mesh), (state, fed), settings, mesh
    )


def validate(params: Any, batch: Any, settings: Settings, mesh: Mesh | None = None) -> Metrics:
    """Return metrics of the validation batch, without dropout."""
    return _of_members(lambda params, mesh: _validate(params, batch, settings, mesh), params, settings, mesh)


@partial(jax.jit, static_argnames=("settings", "steps", "mesh"), donate_argnames="state")
def _run_steps(
    state: TrainState, fed: Any, train_rows: Any, settings: Settings, steps: int, mesh: Mesh | None
) -> tuple[TrainState, Metrics]:
    task = tasks.load(settings.task)
    loss_fn, count = _make_loss(settings, mesh), settings.training.accumulate

    def sample(key: jax.Array, fed: Any) -> Any:
        return task.sample(key, settings, train_rows if fed is None else fed)

    step = train.make_train_step(loss_fn, task.make_optimizer(settings), count, settings.training.ema)
    step = task.train_step(settings, loss_fn, step) if hasattr(task, "train_step") else step
    chunk = train.scan_steps(step, train.several(sample, count), steps)
    return devices.hold(_lift(chunk, settings)(state, fed), mesh, settings.training.members)


def _run_pieces(
    state: TrainState, train_rows: Any, settings: Settings, pieces: Iterator[tuple[int, Any]], mesh: Mesh | None
) -> tuple[TrainState, Metrics]:
    """Return (state, metrics of each step) after the steps of all pieces, see Feeding."""
    found = []
    for steps, fed in pieces:
        jax.block_until_ready(found[-2:-1])  # so that no more than two pieces wait for the device
        state, metrics = run_steps(state, train_rows, settings, steps, mesh, fed)
        found.append(metrics)
    return state, found[0] if len(found) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves, -1), *found)


@partial(jax.jit, static_argnames=("settings", "mesh"))
def _validate(params: Any, batch: Any, settings: Settings, mesh: Mesh | None) -> Metrics:
    loss_fn = _make_loss(settings, mesh)
    metrics = _lift(lambda params: loss_fn(params, batch, None)[1], settings)(params)
    return devices.hold(metrics, mesh, settings.training.members)


def _make_loss(settings: Settings, mesh: Mesh | None = None) -> Callable[[Any, Any, Any], tuple[jax.Array, Metrics]]:
    """Return the task's loss of the parameters of a state; the rows of a training step are spread over devices."""
    task = tasks.load(settings.task)
    loss_fn = task.make_loss(settings)

    def spread_loss(params: Any, batch: Any, key: jax.Array | None) -> tuple[jax.Array, Metrics]:
        batch = batch if key is None else devices.spread(batch, mesh)
        return loss_fn(task.model_params(params, settings), batch, key)

    return spread_loss


def _of_members(function: Callable, tree: Any, settings: Settings, mesh: Mesh | None) -> Any:
    """Return function(tree, mesh), or that of each group of members on devices of its own."""
    if mesh is None or settings.training.members == 1 or _mode(settings) == "vmap":
        return function(tree, mesh)
    return devices.each_group(function, tree, mesh)


def _lift(function: Callable, settings: Settings) -> Callable:
    """Return the function of one model, or of each member of a population."""
    if settings.training.members == 1:
        return function
    return train.over_members(function, _mode(settings))


def _mode(settings: Settings) -> str:
    usual = "map" if jax.default_backend() == "cpu" else "vmap"
    return usual if settings.training.member_mode == "auto" else settings.training.member_mode


def validation_loss(settings: Settings, rows: Any, state: TrainState) -> np.ndarray:
    """Return the loss of each member on the validation rows, as numpy: what `fit` measures at a checkpoint."""
    batch = tasks.load(settings.task).validation(settings, rows)
    return np.asarray(validate(train.trained(state), batch, _program(settings))["loss"])


def fit(
    path: Path, settings: Settings, rows: Any, state: TrainState, proven: Callable[[int], bool] | None = None
) -> TrainState:
    """Train to the last step, and return the state; fill metrics.jsonl and checkpoints/ of the run directory.

    proven(step), if given: whether training ends with the checkpoint of this step, which is then the best of the run.
    The state given is donated. A stop signal exits after a chunk and a checkpoint, with 128 + its number.
    Raises UserError: NON_FINITE as soon as no member's loss is finite, DISK if something cannot be written.
    """
    run, task, program = settings.training, tasks.load(settings.task), _program(settings)
    step, given = int(np.max(state.step)), None
    train_rows, batch = task.train_rows(rows), task.validation(settings, rows)
    log = Log(path / "metrics.jsonl", settings, step, jax.device_get(state.hyper["learning_rate"]))
    mesh = devices.mesh(run.members, run.batch_size)
    if lost := first_lost(read_metrics(path), run.log_every, step):
        tell(f"{log.path} has lost lines, the first of step {lost}: {selection.again(path, lost)}")
    with Feeding(task.feed(settings, rows), state.key, run, mesh) as feeding:
        devices.connect(mesh)
        state = devices.place(state, mesh, run.members)
        with (
            Checkpoints(path / "checkpoints", run.keep) as checkpoints,
            log,  # which may ask for a password
            process.deferred() as received,
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
                if step >= run.steps or (run.patience and stale(path) >= run.patience):
                    break
                if scheduled or given is None:
                    given = _with_missed(path, settings, train_rows)
                until = min(run.steps, step - step % run.log_every + run.log_every)
                state, metrics = _run_pieces(state, given, program, feeding.pieces(step, until), mesh)
                step, metrics, measured = until, devices.readable(metrics, mesh), None
                stopped, scheduled = signalled(), on_schedule(step, run)
                # The line of the chunk before: reading this one's metrics now would stall the device.
                log.flush()
                if scheduled:
                    measured = validate(train.trained(state), batch, program, mesh)
                    measured = jax.device_get(devices.readable(measured, mesh))
                log.hold(step, metrics, measured)
                if scheduled or stopped:
                    record = log.flush()
                    files.fsync(log.path)  # so that no checkpoint outlives its line
                    whole = devices.readable(state, mesh)
                    if jax.process_index() == 0:
                        scores = score(record) if scheduled else record["loss"]
                        checkpoints.save(step, whole, scores, temporary=not scheduled)
                    if stopped := signalled():  # also one that came while it was saved
                        _stop(path, step, checkpoints, stopped)
    state = devices.readable(state, mesh)
    processes.part()
    return state


def _with_missed(path: Path, settings: Settings, train_rows: Any) -> Any:
    """Return the training rows with the contexts that certificates named so far, if the task can use them."""
    missed = getattr(tasks.load(settings.task), "missed", None)
    if missed is None or settings.training.until != "certified":
        return train_rows
    return missed(settings, train_rows, processes.of_first(read_missed(path) if jax.process_index() == 0 else None))


def on_schedule(step: int, run: Training) -> bool:
    """Return whether training.save_every asks for a checkpoint of a step."""
    return step % run.save_every == 0 or step == run.steps


def _stop(path: Path, step: int, checkpoints: Checkpoints, number: int) -> NoReturn:
    """End the process by the number of a signal, once its work is on the disk."""
    processes.part()
    checkpoints.close()
    tell(f"stopped at step {step:,} and saved: {typed('resume', path)} goes on")
    sys.exit(128 + number)


def _ends(checkpoints: Checkpoints, step: int, proven: Callable[[int], bool]) -> bool:
    """Return whether training ends with the checkpoint of a step, and mark it as the best if so."""
    checkpoints.wait()
    if step not in selection.scheduled(checkpoints.facts):
        return False
    if checkpoints.facts[step].scores != [PROVEN]:
        if not proven(step):
            return False
        checkpoints.score(step, [PROVEN])
    return True


def _program(settings: Settings) -> Settings:
    """Return the settings without those that change no compiled program: runs of other seeds compile nothing."""
    training = ("recipe", "seed", "until", "keep", "average", "save_every", "patience", "log_to", "run_dir")
    parts = {"training": training} | tasks.load(settings.task).NOT_COMPILED
    for name, fields in parts.items():
        part = getattr(settings, name)
        usual = replace(part, **{field: getattr(type(part)(), field) for field in fields})
        settings = replace(settings, **{name: usual})
    return settings
