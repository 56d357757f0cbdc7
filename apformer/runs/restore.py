"""Read a trained run back from its directory: settings, rows, and the parameters of its best checkpoint."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from apformer import files, flags, tasks, train
from apformer.analysis.certificate import header
from apformer.decoding.bind import Model, bind
from apformer.errors import CHECKPOINT, DATA, NON_FINITE, UserError, typed
from apformer.machine import devices, process
from apformer.runs import checkpoint, directory, provenance, selection
from apformer.runs.fit import abstract_state
from apformer.settings import Settings, architecture_of
from apformer.tasks.settings_file import read as load_settings
from apformer.train import TrainState


class Run(NamedTuple):
    """A trained run: its settings, and the model of its best checkpoint.

    Attributes:
        path: Directory of the run.
        task: Module of its task, a `tasks.Task`.
        settings: Settings: `data`, `model`, `optimizer`, `training`, `options`.
        params: Parameters of the model; the leaves of the blocks have a leading layer axis.
        model: Functions of the model with these parameters: `model.apply(tokens_BT)` gives logits_BTV.
        step: Step of the checkpoint.
        member: Number of the member of a population; 0 for a single model.
    """

    path: Path
    task: ModuleType
    settings: Settings
    params: dict
    model: Model
    step: int
    member: int

    def __repr__(self) -> str:
        count = optax.tree.size(self.params)
        named = f"path={str(self.path)!r}, task={self.settings.task!r}, step={self.step}, member={self.member}"
        return f"Run({named}, parameters={count:,})"


def load(run: str | Path | None = None, member: int | None = None, step: int | None = None) -> Run:
    """Return the Run in a directory.

    Args:
        run: Directory; None for the latest run.
        member: Number of a member of a population; None for the best on validation rows.
        step: Saved step; None for the best.

    Raises:
        UserError: It names what is missing or damaged.
    """
    process.keep_programs()
    path = directory.find(run)
    settings = load_settings(path)
    params, step, member = load_params(path, settings, member, step)
    return Run(path, tasks.of(settings), settings, params, bind_run(settings, params), step, member)


def bind_run(settings: Settings, params: Any) -> Model:
    """Bind parameters to the model functions of a run, on all devices."""
    return bind(architecture_of(settings), params, settings.model, devices.mesh())


def located(path: Path) -> Settings:
    """Return the settings of a run, with each path from where the run began if it exists there, else as it is."""
    folders = directory.recorded(path, "directory", list)

    def find(name: str) -> str:
        places = (path / str(folder) / name for folder in folders)
        found = str(next(filter(os.path.exists, places), name))
        return name if os.path.exists(name) and os.path.samefile(found, name) else found

    return flags.map_paths(find, load_settings(path))


def load_rows(path: Path) -> Any:
    """Return the rows of a run. Raises UserError (exit DATA) if its dataset has changed since training."""
    settings = located(path)
    task, recorded = tasks.of(settings), directory.recorded(path, "data")
    if directory.saved(path):  # one that stopped as it began may lack its files
        settings = task.stored_settings(settings, path)
    _, rows = task.load(settings)
    data = task.describe(settings, rows)
    if data | {"source": recorded.get("source")} != recorded:
        raise UserError(f"{data['source']} has changed since {path} was trained on it: restore it", DATA)
    return rows


def require_files(path: Path) -> None:
    """Raise UserError (exit DATA) for a file of the task, such as tokenizer.json, that is missing or has changed."""
    for name, digest in directory.recorded(path, "files").items():
        if not (path / name).is_file() or files.sha256(path / name) != digest:
            raise UserError(f"{path / name} is not the file that training wrote: restore it", DATA)


def load_params(
    path: Path, settings: Settings, member: int | None = None, step: int | None = None, merged: bool = True
) -> tuple[Any, int, int]:
    """Return (params of one model, step, member) from a checkpoint of a run.

    With training.average above 1 and without a step, params is the mean of the newest checkpoints.

    Args:
        path: Run directory.
        settings: Its settings.
        member: Number of a member; None for the best.
        step: Saved step; None for the best, or the newest if none has a score.
        merged: Whether adapters are merged into their base; if not, params has both, as the state does.

    Raises:
        UserError: USAGE for a member that the run does not have, NON_FINITE for one whose parameters are not finite,
            CHECKPOINT for a damaged or missing checkpoint, and as `require_files` does.
    """
    provenance.require_environment(path, provenance.OF_SHAPES)
    require_files(path)
    members, folder = settings.training.members, path / "checkpoints"
    if member is not None and not 0 <= member < members:
        raise UserError(f"--member {member} is out of range: {path} has members 0 to {members - 1}")
    steps: Sequence[int | None] = [step]
    if step is None:
        facts, average = selection.read_all(folder), settings.training.average
        steps = (selection.scheduled(facts)[-average:] if average > 1 else ()) or [selection.best(facts)]
    abstract = abstract_state(settings)

    def params_of(state: TrainState) -> Any:
        params = train.trained(state)
        params = params if members == 1 else jax.tree.map(lambda leaf: leaf[chosen], params)
        return tasks.of(settings).model_params(params, settings) if merged else params

    try:
        newest, state = checkpoint.load(folder, abstract, steps[-1])
        chosen = _choose(path, newest, members, member)
        last = params_of(state)
        if len(steps) == 1:
            return last, newest, chosen
        params = [params_of(checkpoint.load(folder, abstract, step)[1]) for step in steps[:-1]] + [last]
    except (UserError, selection.Damaged):
        if step is None and not {*steps} <= {None, *selection.steps(folder)}:
            return load_params(path, settings, member, None, merged)  # the process that trains has removed one
        raise
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *params), newest, chosen


def load_result(path: Path, settings: Settings, name: str) -> tuple[dict[str, Any], Any]:
    """Return the content of a result file, such as certificate.json, and the parameters that it was measured on.

    These are of the step that the file names, or with training.average above 1 the mean of the newest checkpoints.

    Raises:
        UserError: Exit code CHECKPOINT, if the file is damaged or of another version, or those parameters are gone.
    """
    result = {}
    expected = {}
    command = "evaluate"
    if name == "certificate.json":
        command = "certify"
        expected = header(settings)
    with suppress(UserError):
        result = files.read_json(path / name)
    fault = "damaged or of another version"
    if files.has(result, {"step": int, "member": int, "parameters_sha256": str}) and result | expected == result:
        fault = f"of other parameters than those of step {result['step']}"
        try:
            for step in (result["step"], None)[: settings.training.average]:  # None: the mean
                params, _, _ = load_params(path, settings, result["member"], step)
                if provenance.digest(params) == result["parameters_sha256"]:
                    return result, params
        except UserError as error:
            fault = f"of a checkpoint that is not sound ({error})"
    raise UserError(f"{path / name} is {fault}: run {typed(command, path)}", CHECKPOINT)


def _choose(path: Path, step: int, members: int, member: int | None) -> int:
    """Return `member`, or with None that of the lowest score at a step. Raises UserError if it is not finite."""
    if members == 1:
        return 0
    scores_M = np.array(selection.read_facts(path / "checkpoints" / str(step)).scores, np.float64)
    if member is None:
        if not np.isfinite(scores_M).any():
            raise UserError(
                f"{path} does not say which member is the best at step {step:,}"
                f": choose one with --member 0 to {members - 1}",
                CHECKPOINT,
            )
        return int(np.nanargmin(scores_M))
    if len(scores_M) and np.isnan(scores_M[member]):
        raise UserError(f"--member {member} of {path} is not finite at step {step:,}: give another", NON_FINITE)
    return member
