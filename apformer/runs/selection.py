"""Read the facts of a run's checkpoints: which steps were saved, which is the best, and which are damaged.

    checkpoints/400/            A checkpoint. It is damaged if its facts are missing or not as they were written.
                400.corrupt/    A damaged one, set aside.
                removed/, *tmp* A removal or a save in progress, or what a crash left of one.

A checkpoint that was saved at a stop is temporary: training continues from it, but it is never the model of the run.
"""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from apformer.errors import CHECKPOINT, UserError, tell, typed
from apformer.files import disk_errors, has, parse_json
from apformer.proof.check import with_digest

FILE = Path("facts", "facts.json")  # of a checkpoint
EARLIER = Path("MANIFEST.json")  # the same in a checkpoint of apformer 0.3
REMOVED = "removed"  # the folder of the checkpoints that are about to be removed
PROVEN = -1.0  # score of a checkpoint that ended training because it is certified; sorts first


@dataclass(frozen=True)
class Facts:
    """Facts of a checkpoint, besides its arrays.

    Attributes:
        step: Number of training steps.
        scores: Score of each member; lower is better, None if it is not finite.
        temporary: Whether it was saved at a stop.
        tree: {name: dtype and shape} of the arrays.
        keys: {name: generator} of the random keys.
        arrays_sha256: SHA-256 of the names, shapes and bytes of the arrays.
    """

    step: int
    scores: list
    temporary: bool
    tree: dict
    keys: dict
    arrays_sha256: str


class Damaged(Exception):
    """The reason why a checkpoint cannot be used."""


def file_of(path: Path) -> Path:
    """Return the file of a checkpoint that holds its facts."""
    return path / (EARLIER if (path / EARLIER).exists() else FILE)


def sealed(facts: Facts) -> dict[str, Any]:
    """Return the facts as JSON with their own sha256."""
    return with_digest(asdict(facts))


def read_facts(path: Path) -> Facts:
    """Return the facts of the checkpoint at a path. Raises Damaged unless they are as they were written."""
    kinds = {field.name: field.type for field in fields(Facts)}
    with disk_errors(path, "read"):
        file = file_of(path)
        content = file.read_bytes() if file.is_file() else b""
    with suppress(ValueError):
        saved = parse_json(content)
        if has(saved, kinds | {"sha256": str}) and saved.pop("sha256") == with_digest(saved)["sha256"]:
            numbers = all(score is None or type(score) is float for score in saved["scores"])
            if numbers and saved["step"] == int(path.name):
                return Facts(**{name: saved[name] for name in kinds})
    raise Damaged(f"{file.name} is not as it was written")


def steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, ascending, damaged ones included.

    Raises UserError(DISK) for a folder that cannot be read: without this, a run would seem to have no checkpoint.
    """
    with disk_errors(folder, "read"):
        names = os.listdir(folder) if folder.exists() else []
        return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def refuse(path: Path, damage: Damaged) -> NoReturn:
    """Raise UserError (exit CHECKPOINT) that names a damaged checkpoint and the remedy."""
    use = f"{typed('resume', path.parent.parent)} sets it aside and continues from the newest sound one, or "
    remedy = use * (len(steps(path.parent)) > 1) + "restore it from a copy"
    raise UserError(f"{path} is damaged ({damage}): {remedy}", CHECKPOINT)


def set_aside(path: Path, damage: Damaged) -> None:
    """Rename a damaged checkpoint to `<step>.corrupt`, with a line on standard error."""
    aside = path.with_suffix(".corrupt")
    with disk_errors(path):
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    tell(f"{path} is damaged ({damage}): renamed to {aside.name}")


def read_all(folder: Path, on_damage: Callable[[Path, Damaged], None] = refuse) -> dict[int, Facts]:
    """Return {step: facts}, ascending. on_damage: called for each damaged checkpoint, `refuse` or `set_aside`."""
    facts = {}
    for step in steps(folder):
        path = folder / str(step)
        try:
            facts[step] = read_facts(path)
        except Damaged as damage:
            if path.exists():  # unless the process that trains has just removed it
                on_damage(path, damage)
    return facts


def scheduled(facts: dict[int, Facts]) -> list[int]:
    """Return the steps that were not saved at a stop, ascending."""
    return [step for step in sorted(facts) if not facts[step].temporary]


def best(facts: dict[int, Facts]) -> int | None:
    """Return the step with the lowest mean score over finite members, or without scores the newest; None if empty."""
    means = {}
    for step in scheduled(facts):
        finite = [score for score in facts[step].scores if score is not None]
        if finite:
            means[step] = np.mean(finite)
    return min(reversed(means), key=means.__getitem__, default=max(facts, default=None))


def remove(folder: Path, step: int) -> None:
    """Remove the checkpoint of a step."""
    # First move it to the folder of removals: then a crash half way through does no harm.
    with disk_errors(folder):
        (folder / REMOVED).mkdir(exist_ok=True)
        (folder / str(step)).rename(folder / REMOVED / str(step))
    remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove the leftovers of removals and interrupted saves."""
    for path in (folder / REMOVED, *folder.glob("[0-9]*tmp*")):
        shutil.rmtree(path, ignore_errors=True)


def remedy(run_dir: Path, step: int) -> str:
    """Return the remedy for a damaged or missing step: to resume from the saved step before it, or restore a copy."""
    before = [saved for saved in steps(run_dir / "checkpoints") if saved < step]
    resume = f"{typed('resume', run_dir, '--step', before[-1])} trains again from there, or " if before else ""
    return f"{resume}restore it from a copy"


def score(record: dict[str, Any]) -> np.ndarray:
    """Return the score of a checkpoint or of each member, lower is better: the share of wrong terms, then the loss.

    Not the loss alone: on a small file it rises as the first two terms are memorised, while the rule is still learned.
    For a text, where nothing is right or wrong, it is the loss alone.

    Args:
        record: Line of metrics.jsonl with `validation_loss`: numbers or arrays; None, for a member that is not
            finite, becomes NaN.
    """
    loss = np.asarray(record.get("validation_loss"), np.float64)
    if "validation_exact" not in record:
        return loss
    return 1.0 - np.asarray(record["validation_exact"], np.float64) + 1e-4 * loss
