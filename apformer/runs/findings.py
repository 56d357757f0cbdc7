"""Read a whole run directory against itself: what is sound in it, what is not, and what to do. Nothing is changed.

The arrays of every checkpoint have the sha256 that its facts name. Its scores are those of metrics.jsonl, whose lines
are whole and follow each other. evaluation.json and certificate.json are of parameters that a checkpoint holds, and the
dataset is the one that config.json describes.
"""

import fcntl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apformer.errors import CHECKPOINT, UserError, typed
from apformer.runs import checkpoint, directory, selection
from apformer.runs.fit import abstract_state
from apformer.runs.metrics import first_lost, read_metrics
from apformer.runs.restore import load_result, load_rows, load_settings
from apformer.settings import Settings


class Finding(NamedTuple):
    """A part of a run, and what was found of it. code: the exit code of a fault, 0 of what is sound."""

    what: str
    says: str
    code: int = 0


def findings(path: Path) -> list[Finding]:
    """Return what was found of each part of a run directory."""
    found, saved = [], selection.steps(path / "checkpoints")

    def examine(what: str, part: Callable, *args: Any) -> None:
        """Note what part(path, *args) says, or the UserError that it raises."""
        try:
            found.append(Finding(what, part(path, *args)))
        except UserError as fault:
            found.append(Finding(what, str(fault), fault.exit_code))

    examine("config.json", _config)
    if found[-1].code:
        return found
    settings = load_settings(path)
    examine("dataset", _dataset)
    examine("metrics.jsonl", _metrics, settings)
    sound = not found[-1].code and saved
    lines = {record["step"]: record for record in read_metrics(path)} if sound else {}
    for step in saved:
        examine(f"checkpoint {step}", _checkpoint, settings, step, lines)
    if not saved:
        found.append(Finding("checkpoints", f"none yet: {typed('resume', path)} trains"))
    for name, command in (("evaluation.json", "evaluate"), ("certificate.json", "certify")):
        if (path / name).exists():
            examine(name, _result, settings, name, command)
    return [*found, *_leftovers(path), _lock(path)]


def _config(path: Path) -> str:
    settings = load_settings(path)
    return f"{settings.task}, recipe {settings.training.recipe}"


def _dataset(path: Path) -> str:
    load_rows(path)
    return "as config.json describes it"


def _metrics(path: Path, settings: Settings) -> str:
    if not (path / "metrics.jsonl").exists() and not directory.saved(path):
        return "none yet"
    records, run = read_metrics(path), settings.training
    last = records[-1]["step"] if records else 0
    if lost := first_lost(records, run.log_every, last):
        raise UserError(
            f"the line of step {lost:,} is missing, or not at its place: {selection.again(path, lost)}", CHECKPOINT
        )
    return f"{len(records):,} lines to step {last:,} of {run.steps:,}"


def _checkpoint(path: Path, settings: Settings, step: int, lines: dict[int, dict]) -> str:
    """Return what is said of a checkpoint whose scores are those of metrics.jsonl; without `lines` of it, of any."""
    folder = path / "checkpoints"
    checkpoint.load(folder, abstract_state(settings), step)
    facts = selection.read_facts(folder / str(step))
    fault = f"metrics.jsonl has no line of step {step:,}" if lines and step not in lines else None
    # Nothing is measured of parameters that were given, nor at a stop.
    if step in lines and facts.scores and not facts.temporary and facts.scores != [selection.PROVEN]:
        ours, theirs = np.array(facts.scores, np.float64), np.empty(0)
        with suppress(ValueError):
            theirs = np.ravel(selection.score(lines[step]))
        # A member that is not finite has no score, though its loss may be a number.
        if ours.shape != theirs.shape or not np.all((ours == theirs) | np.isnan(ours)):
            fault = "its scores are not those of metrics.jsonl"
    if fault:
        raise UserError(f"{fault}: {selection.again(path, step)}", CHECKPOINT)
    saved = "at a stop" if facts.temporary else "on schedule"
    return f"saved {saved}, {len(facts.tree)} arrays as they were written"


def _result(path: Path, settings: Settings, name: str, command: str) -> str:
    """Return what is said of evaluation.json or certificate.json, which a command writes anew."""
    told, _ = load_result(path, settings, name, command)
    return f"of the parameters of step {told['step']:,}, member {told['member']}"


def _leftovers(path: Path) -> list[Finding]:
    """Return a Finding of each file that crashes and damage left, which is in nobody's way."""
    kinds = {
        "*.tmp*": "of a write that was cut short: delete it",
        "checkpoints/*tmp*": "of a save that was cut short: delete it",
        "checkpoints/*.corrupt": "which is not used: delete it, or keep it to look into",
    }
    return [
        Finding("leftover", f"{entry.relative_to(path)}, {what}")
        for pattern, what in kinds.items()
        for entry in sorted(path.glob(pattern))
    ]


def _lock(path: Path) -> Finding:
    """Return whether a process trains in a run."""
    says = "free"
    with suppress(OSError), open(path / ".lock", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            says = f"in use by {file.read().strip()}: ask again when it has ended, faults may be its work"
    return Finding("lock", says)
