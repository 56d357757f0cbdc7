"""Verify a run directory without changing it: find what is damaged, and name the remedy.

Checked are the sha256 of the arrays of every checkpoint; its scores against metrics.jsonl, which must have every line;
evaluation.json and certificate.json, which must be of the parameters of a checkpoint; and the dataset, which must be
the one that config.json describes.
"""

import fcntl
from contextlib import suppress
from pathlib import Path

import numpy as np

from apformer.errors import CHECKPOINT, Finding, UserError, found, typed
from apformer.runs import checkpoint, directory, selection
from apformer.runs.fit import abstract_state
from apformer.runs.metrics import first_lost, read_metrics
from apformer.runs.restore import load_result, load_rows, load_settings, require_files
from apformer.settings import Settings, Training


def findings(path: Path) -> list[Finding]:
    """Return a Finding of each part of a run directory."""
    results, saved = [found("config.json", _config, path)], selection.steps(path / "checkpoints")
    if results[-1].code:
        return results
    settings = load_settings(path)
    results += [found("dataset", _dataset, path), found("metrics.jsonl", _metrics, path, settings.training, saved)]
    lines = {} if results[-1].code or not saved else {record["step"]: record for record in read_metrics(path)}
    for step in saved:
        results.append(found(f"checkpoint {step}", _checkpoint, path, settings, step, lines))
    if not saved:
        results.append(Finding("checkpoints", f"none yet: {typed('resume', path)} trains"))
    for name in ("evaluation.json", "certificate.json"):
        if (path / name).exists():
            results.append(found(name, _result, path, settings, name))
    return [*results, *_leftovers(path), _lock(path)]


def _config(path: Path) -> str:
    settings = load_settings(path)
    return f"{settings.task}, recipe {settings.training.recipe}"


def _dataset(path: Path) -> str:
    load_rows(path)
    if directory.saved(path):
        require_files(path)
    return "as config.json describes it"


def _metrics(path: Path, run: Training, saved: list[int]) -> str:
    if not (path / "metrics.jsonl").exists() and not directory.saved(path):
        return "none yet"
    records = read_metrics(path)
    last = max([*saved, *(record["step"] for record in records)], default=0)
    if lost := first_lost(records, run.log_every, last):
        raise UserError(
            f"the line of step {lost:,} is missing, or not at its place: {selection.remedy(path, lost)}", CHECKPOINT
        )
    return f"{len(records):,} lines to step {last:,} of {run.steps:,}"


def _checkpoint(path: Path, settings: Settings, step: int, lines: dict[int, dict]) -> str:
    """Describe a checkpoint. Its scores must be those of metrics.jsonl, {step: record}, unless `lines` is empty."""
    folder = path / "checkpoints"
    checkpoint.load(folder, abstract_state(settings), step)
    facts = selection.read_facts(folder / str(step))
    # A checkpoint of commands.train.keep, or of a stop, has no validation loss.
    measured = step in lines and lines[step].get("loss") is not None
    if measured and not facts.temporary and facts.scores != [selection.PROVEN]:
        scores, recorded = np.array(facts.scores, np.float64), np.empty(0)
        with suppress(ValueError):
            recorded = np.ravel(selection.score(lines[step]))
        # A member that is not finite has no score, though its loss may be a number.
        if scores.shape != recorded.shape or not np.all((scores == recorded) | np.isnan(scores)):
            raise UserError(f"its scores are not those of metrics.jsonl: {selection.remedy(path, step)}", CHECKPOINT)
    saved = "at a stop" if facts.temporary else "on schedule"
    return f"saved {saved}, {len(facts.tree)} arrays as they were written"


def _result(path: Path, settings: Settings, name: str) -> str:
    """Describe evaluation.json or certificate.json."""
    result, _ = load_result(path, settings, name)
    return f"of the parameters of step {result['step']:,}, member {result['member']}"


def _leftovers(path: Path) -> list[Finding]:
    """Return a Finding of each file that a crash or damage left behind. These are no faults."""
    kinds = {
        "*.tmp*": "of a write that was cut short: delete it",
        "checkpoints/*tmp*": "of a save that was cut short: delete it",
        "checkpoints/*.corrupt": "which is not used: delete it, or keep it to look into",
    }
    return [
        Finding("leftover", f"{entry.relative_to(path)}, {remedy}")
        for pattern, remedy in kinds.items()
        for entry in sorted(path.glob(pattern))
    ]


def _lock(path: Path) -> Finding:
    """Return the Finding of the lock: whether a process trains in the run."""
    says = "free"
    with suppress(OSError), open(path / ".lock", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            says = f"in use by {file.read().strip()}: repeat this when it has ended, since it may be writing files"
    return Finding("lock", says)
