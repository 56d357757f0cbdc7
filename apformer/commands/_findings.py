"""Read a whole run directory against itself: what is sound in it, what is not, and what to do. Nothing is changed.

The arrays of every checkpoint have the sha256 that its facts name. Its scores are those of metrics.jsonl, whose lines
are whole and follow each other. evaluation.json and certificate.json are of parameters that a checkpoint holds, and the
dataset is the one that config.json describes.
"""

import fcntl
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apformer import files
from apformer.analysis.certificate import FORMAT
from apformer.errors import CHECKPOINT, UserError, typed
from apformer.runs import checkpoint, directory, selection
from apformer.runs.fit import abstract_state
from apformer.runs.metrics import first_lost, read_metrics
from apformer.runs.restore import load_described, load_rows, load_settings
from apformer.runs.selection import Facts
from apformer.settings import Settings, Training


class Finding(NamedTuple):
    """A part of a run, and what was found of it. code: the exit code of a fault, 0 of what is sound."""

    what: str
    says: str
    code: int = 0


def findings(path: Path) -> list[Finding]:
    """Return what was found of each part of a run directory."""
    try:
        settings = load_settings(path)
    except UserError as fault:
        return [Finding("config.json", str(fault), fault.exit_code)]
    records, of_metrics = _metrics(path, settings.training)
    facts, of_checkpoints = _checkpoints(path, settings, records)
    found = [
        Finding("config.json", f"{settings.task}, recipe {settings.training.recipe}"),
        _dataset(path),
        of_metrics,
        *of_checkpoints,
    ]
    for what, command in (("evaluation.json", "evaluate"), ("certificate.json", "certify")):
        if (path / what).exists():
            found.append(_result(path, settings, what, f"`apformer {command} {path}` writes it anew", facts))
    return [*found, *_leftovers(path), _lock(path)]


def _dataset(path: Path) -> Finding:
    try:
        load_rows(path)
    except UserError as fault:
        return Finding("dataset", str(fault), fault.exit_code)
    return Finding("dataset", "as config.json describes it")


def _metrics(path: Path, run: Training) -> tuple[list[dict], Finding]:
    """Return the records of metrics.jsonl that can be read, and what was found of it."""
    name = "metrics.jsonl"
    if not (path / name).exists() and not directory.saved(path):
        return [], Finding(name, "none yet")
    try:
        records = read_metrics(path)
    except UserError as fault:
        return _whole_lines(path / name), Finding(name, str(fault), fault.exit_code)
    last = records[-1]["step"] if records else 0
    if lost := first_lost(records, run.log_every, last):
        fault = f"the line of step {lost:,} is missing, or not at its place"
        return records, Finding(name, f"{fault}: {selection.again(path, lost)}", CHECKPOINT)
    return records, Finding(name, f"{len(records):,} lines to step {last:,} of {run.steps:,}")


def _whole_lines(path: Path) -> list[dict]:
    """Return those records of a damaged metrics.jsonl that can be read."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError):
            found.append(files.read_record(line))
    return found


def _checkpoints(path: Path, settings: Settings, records: list[dict]) -> tuple[dict[int, Facts], list[Finding]]:
    """Return {step: facts} of the sound checkpoints, and what was found of each checkpoint."""
    folder, sound, found = path / "checkpoints", {}, []
    lines = {record["step"]: record for record in records}
    abstract = abstract_state(settings)
    for step in selection.steps(folder):
        what = f"checkpoint {step}"
        try:
            checkpoint.load(folder, abstract, step)
        except UserError as fault:
            found.append(Finding(what, str(fault), fault.exit_code))
            continue
        sound[step] = facts = selection.read_facts(folder / str(step))
        if fault := _other_scores(facts, lines.get(step)):
            found.append(Finding(what, f"{fault}: {selection.again(path, step)}", CHECKPOINT))
        else:
            saved = "at a stop" if facts.temporary else "on schedule"
            found.append(Finding(what, f"saved {saved}, {len(facts.tree)} arrays as they were written"))
    return sound, found or [Finding("checkpoints", f"none yet: {typed('resume', path)} trains")]


def _other_scores(facts: Facts, record: dict | None) -> str | None:
    """Return a difference between the facts of a checkpoint and the line of its step; None if they agree."""
    if record is None:
        return f"metrics.jsonl has no line of step {facts.step:,}"
    if not facts.scores:
        return None  # its parameters were given, and nothing was measured
    measured = selection.validation(record)
    if facts.temporary == bool(measured):
        return "metrics.jsonl says otherwise whether it was saved at a stop"
    if not measured or facts.scores == [selection.PROVEN]:
        return None
    try:
        ours, theirs = (np.asarray(scores, np.float64) for scores in (facts.scores, selection.score(measured)))
    except (KeyError, TypeError, ValueError) as fault:
        return f"its line of metrics.jsonl is damaged ({fault})"
    # A member that is not finite has no score, though its loss may be a number.
    same = ours.size == theirs.size and np.all((ours == theirs.ravel()) | np.isnan(ours))
    return None if same else "its scores are not those of metrics.jsonl"


def _result(path: Path, settings: Settings, what: str, anew: str, facts: dict[int, Facts]) -> Finding:
    """Return what was found of evaluation.json or certificate.json. anew: the remedy."""
    try:
        told: Any = files.read_json(path / what)
        step, member = told["step"], told["member"]
        if what == "certificate.json" and told.get("format") != FORMAT:
            return Finding(what, f"of an older version, and no proof: {anew}", CHECKPOINT)
        if step not in facts:
            return Finding(what, f"of step {step}, which has no sound checkpoint: {anew}", CHECKPOINT)
        if load_described(path, settings, told) is None:
            return Finding(what, f"of other parameters than those of step {step}: {anew}", CHECKPOINT)
        if told.get("model", asdict(settings.model)) != json.loads(json.dumps(asdict(settings.model))):
            return Finding(what, f"of another model than config.json describes: {anew}", CHECKPOINT)
    except (KeyError, TypeError, UserError) as fault:
        return Finding(what, f"damaged, or of an older version of apformer ({fault}): {anew}", CHECKPOINT)
    return Finding(what, f"of the parameters of step {step:,}, member {member}")


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
