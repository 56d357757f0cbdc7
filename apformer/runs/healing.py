"""Damaged checkpoints, computed again: training is a function of its state, and gives the same bits each time.

    sound 4    damaged 8    sound 12        steps 5 to 8 are done again from 4, and 12 stays as it is

The state that comes out is written only if it is the one that was lost: its sha256 is compared with the manifest of the
damaged checkpoint. Where that manifest is damaged too, its losses are compared with metrics.jsonl, number for number.
The files have other names and times than before, which orbax draws at random. The arrays in them are the same.
"""

import json
import shutil
import sys
from contextlib import suppress
from math import inf
from pathlib import Path

import jax
import numpy as np

from apformer import files
from apformer.errors import UserError
from apformer.machine import devices
from apformer.report import progress
from apformer.runs import checkpoint, manifest, selection
from apformer.runs.fit import course, on_schedule
from apformer.runs.metrics import MISSED, finite_mean, read_metrics, read_missed, record_of
from apformer.runs.provenance import versions
from apformer.runs.selection import score, validation

RECOMPUTED = "recomputed"  # the folder of what came out other than it was


def heal(path, settings, rows, abstract_state, start, only=None):
    """Verify the checkpoints of a run, set the damaged ones aside, and compute again what is missing then.

    abstract_state: as `checkpoint.load` wants it. start: a function to the state before the first step. only: a step,
    and the others are left as they are. What cannot be computed again is said on standard error and stays set aside.
    """
    folder = path / "checkpoints"
    selection.tidy(folder)
    for step in selection.steps(folder):
        try:
            if only in (None, step):
                selection.facts_of(folder / str(step), manifest.verify)
        except manifest.Corrupt as damage:
            selection.set_aside(folder / str(step), damage)
    lost = [step for step in _lost(path, settings.training) if only in (None, step)]
    devices.agree("damage to the checkpoints", lost)
    for step in lost:
        try:
            print(f"{path}: {_heal(path, settings, rows, abstract_state, start, step)}", file=sys.stderr)
        except UserError as fault:
            print(f"{path}: step {step:,} cannot be computed again: {fault}", file=sys.stderr)


def due(records, run, proven=False):
    """The steps of the checkpoints that a run holds after these records of metrics.jsonl: see `Checkpoints`.

    proven: whether training ended with a proof. Then the last one is the best, whatever the records say.
    """
    means = {}
    for record in records:
        with suppress(KeyError, TypeError, ValueError):  # of a line that is damaged
            if found := validation(record):
                means[record["step"]] = finite_mean(score(found))
    best = [min(means, key=lambda step: (means[step], -step))] if means and not proven else []
    return {*[*means][-run.keep :], *best, *[record["step"] for record in records[-1:]]}


def replay(settings, rows, state, until, named=()):
    """(state, record) at the step `until`, on the way that `fit` takes, with nothing written.

    record: the line of metrics.jsonl without its seconds. named: the records of missed.jsonl. The state given is
    donated.
    """
    run, step = settings.training, int(np.max(state.step))
    peak = jax.device_get(state.hyper["learning_rate"])
    with course(settings, rows, state) as (state, advance, measure, mesh):
        with progress.bar(total=until, initial=step, unit="step", leave=False) as bar:
            while step < until:
                step, state, metrics = advance(step, state, named)
                metrics = jax.device_get(metrics)
                bar.update(step - bar.n)
        found = measure(state) if on_schedule(step, run) else None
        return devices.readable(state, mesh), record_of(step, metrics, found, settings, peak)


def missing(path, records, run):
    """The steps whose checkpoint a run should hold and does not, ascending; training comes to later ones by itself."""
    folder = path / "checkpoints"
    there = selection.steps(folder)
    lost = due(records, run, selection.proven(folder)) - {*there}
    return sorted(step for step in lost if there and step < there[-1] or (folder / f"{step}.corrupt").exists())


def forget_after(path: Path, step: int) -> None:
    """Take a run back to a step: its checkpoints, its metrics, and what was found of a checkpoint that is gone."""
    saved = selection.steps(path / "checkpoints")
    for later in reversed(saved):
        if later > step:
            selection.remove(path / "checkpoints", later)
    for name in ("evaluation.json", "certificate.json"):
        if _step_of(path / name) not in [kept for kept in saved if kept <= step]:
            with files.disk_errors(path):
                (path / name).unlink(missing_ok=True)
    for name in ("metrics.jsonl", MISSED):
        files.truncate_after(path / name, step)


def _step_of(file: Path) -> int | None:
    """The step that a file of the run describes; None if it is missing or damaged."""
    try:
        return json.loads(file.read_bytes())["step"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _lost(path, run):
    """The steps of the checkpoints to compute again, ascending."""
    for name in ("metrics.jsonl", MISSED):
        files.truncate_after(path / name, inf)  # drops a line that is torn
    records = read_metrics(path) if (path / "metrics.jsonl").exists() else []
    tried = path / "checkpoints" / RECOMPUTED
    return [step for step in missing(path, records, run) if not (tried / str(step)).exists()]


def _heal(path, settings, rows, abstract_state, start, step):
    """Compute a lost checkpoint again, and put it where it was: a sentence about it. Raises UserError if that fails."""
    folder, aside = path / "checkpoints", path / "checkpoints" / f"{step}.corrupt"
    before, state = _sound_before(folder, abstract_state, step) or (0, start())
    print(f"{path}: step {step:,} is computed again from step {before:,}", file=sys.stderr)
    state, record = replay(settings, rows, state, step, read_missed(path))
    found, promise = validation(record), _promise(aside, step)
    scores = score(found) if found else record["loss"]
    if promise is not None:
        scores = np.array(promise["scores"], np.float64)  # which may also say that the run ended with a proof
    facts, arrays = checkpoint.describe(step, state, scores, temporary=not found)
    if promise is not None and "arrays_sha256" in promise:
        source, same = "its manifest", promise["arrays_sha256"] == checkpoint.digest(arrays)
    else:
        source, same = "metrics.jsonl", _same(record, next(line for line in read_metrics(path) if line["step"] == step))
    if same:
        checkpoint.write(folder, facts, arrays)
        shutil.rmtree(aside, ignore_errors=True)
        return f"step {step:,} is there again, as {source} says"
    (folder / RECOMPUTED).mkdir(exist_ok=True)
    checkpoint.write(folder / RECOMPUTED, facts, arrays)
    kept = f"it is kept as {folder / RECOMPUTED / str(step)} and the damaged one as {aside.name}, and neither is used"
    return f"step {step:,} came out other than {source} says{_elsewhere(promise)}: {kept}"


def _sound_before(folder, abstract_state, step):
    """(step, state) of the newest sound checkpoint before a step; None if there is none."""
    for before in reversed(selection.steps(folder)):
        if before < step:
            with suppress(UserError):
                return checkpoint.load(folder, abstract_state, before)


def _promise(aside, step):
    """The manifest of a damaged checkpoint; None if it is damaged itself, or of another step."""
    try:
        promise = manifest.read(aside)
    except manifest.Corrupt:
        return None
    return promise if promise["step"] == step else None


def _same(record, line):
    """Whether a line of metrics.jsonl says the same as a record, bit for bit."""
    try:
        numbers = [[np.asarray(values, np.float64) for values in (record[name], line.get(name))] for name in record]
    except (TypeError, ValueError):
        return False
    return all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in numbers)


def _elsewhere(promise):
    """The versions of packages that differ from those a checkpoint was written with, as words."""
    here, there = versions(), promise["versions"] if promise else {}
    differ = [f"{name} {there[name]}, here {here.get(name)}" for name in there if there[name] != here.get(name)]
    return f" (it was written with {'; '.join(differ)})" if differ else ""
