"""Which saved steps a run has: those that count, the best of them, and what becomes of those that are damaged.

    checkpoints/400/            A checkpoint. It is damaged if its manifest is missing or not as it was written.
                400.corrupt/    A damaged one, set aside until it is computed again (healing.py).
                400.tmp*/       A save or a removal in progress, or what a crash left of one.

What a stop saved is temporary: training goes on from it, but it never counts as the model of the run.
"""

import re
import shutil
import sys
from pathlib import Path

import numpy as np

from apformer.errors import CHECKPOINT, UserError, typed
from apformer.files import disk_errors
from apformer.runs import manifest

PROVEN = -1.0  # the score of a checkpoint with which training ended because it is certified: the least there is
_STEP = "(?:0|[1-9][0-9]*)"


def steps(folder):
    """The steps of the checkpoints of `folder`, ascending; also of those that turn out to be damaged."""
    return sorted(int(path.name) for path in Path(folder).glob("[0-9]*") if re.fullmatch(_STEP, path.name))


def scheduled(folder):
    """The steps of the checkpoints that were not saved at a stop, ascending. Raises UserError as `best` does."""
    return [step for step, facts in _manifests(folder).items() if not facts["temporary"]]


def best(folder):
    """The step of the lowest mean score of its finite members, the newest of equals; None if none has a score.

    Raises UserError(CHECKPOINT) if a manifest is damaged: that checkpoint may have been the best.
    """
    means = {}
    for step, facts in _manifests(folder).items():
        finite = [score for score in facts["scores"] if score is not None]
        if finite and not facts["temporary"]:
            means[step] = np.mean(finite)
    return min(means, key=lambda step: (means[step], -step), default=None)


def proven(folder):
    """Whether the newest checkpoint is one with which training ended because it is certified."""
    try:
        return any(facts_of(Path(folder) / str(step))["scores"] == [PROVEN] for step in steps(folder)[-1:])
    except manifest.Corrupt:
        return False


def member_scores(folder, step):
    """The scores of a saved step, an array with a number for each member; NaN where one is not finite."""
    return np.array(facts_of(Path(folder) / str(step))["scores"], np.float64)


def facts_of(path, read=manifest.read):
    """The manifest of a checkpoint, as manifest.read or manifest.verify finds it. Raises manifest.Corrupt."""
    facts = read(path)
    if facts["step"] != int(path.name):
        raise manifest.Corrupt(f"it is a copy of step {facts['step']}")
    return facts


def remove(folder, step):
    """Remove the checkpoint of a step, if it is there."""
    path = Path(folder) / str(step)
    # Under this name it no longer counts, so a crash half way through does no harm.
    aside = path.with_suffix(".tmp.removed")
    with disk_errors(path):
        shutil.rmtree(aside, ignore_errors=True)
        if path.exists():
            path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)


def tidy(folder):
    """Remove what interrupted saves and removals left, `400.tmp*`; rename what lacks a sound manifest."""
    for path in folder.glob("*"):
        if re.fullmatch(rf"{_STEP}\.tmp.*", path.name):
            shutil.rmtree(path, ignore_errors=True)
    for step in steps(folder):
        path = folder / str(step)
        if (damage := _damage(path)) is not None:
            set_aside(path, damage)


def _manifests(folder):
    """{step: manifest}, ascending. Raises UserError(CHECKPOINT) if one is damaged."""
    found = {}
    for step in steps(folder):
        path = Path(folder) / str(step)
        try:
            found[step] = facts_of(path)
        except manifest.Corrupt as damage:
            if path.exists():  # and was not removed just now by the process that trains
                raise refusal(path, damage) from None
    return found


def _damage(path):
    """What is wrong with the manifest of a checkpoint; None if it is as it was written."""
    try:
        facts_of(path)
    except manifest.Corrupt as damage:
        return damage


def refusal(path, damage):
    """The error that names a damaged checkpoint and the sound ones beside it."""
    siblings = (path.parent / str(step) for step in steps(path.parent))
    others = [int(other.name) for other in siblings if other.name != path.name and _damage(other) is None]
    remedy = f"{typed('resume', path.parent.parent)} computes it again"
    remedy += f"; or delete it, to use step {others}" if others else ""
    return UserError(f"{path} is damaged ({damage}): {remedy}", CHECKPOINT)


def again(run_dir, step):
    """How a step of a run is trained again that no manifest vouches for: a remedy."""
    before = [saved for saved in steps(run_dir / "checkpoints") if saved < step]
    remedy = f"{typed('resume', run_dir, '--step', before[-1])} trains again from there, or " if before else ""
    return f"{remedy}restore it from a copy"


def set_aside(path, damage):
    """Rename a damaged checkpoint so that it no longer counts, and say so on standard error."""
    aside = path.with_suffix(".corrupt")
    with disk_errors(path):
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
    print(f"{path} is damaged ({damage}): renamed to {aside.name}", file=sys.stderr)


def score(validation):
    """What the best checkpoint and the best member have the least of: wrong terms, and between equals, loss.

    Not loss alone: on a small file it rises as the first two terms are memorised, while the rule is still learned. Of a
    text, where nothing is right or wrong, loss alone. validation: {"loss": ..., "exact": ...}, numbers or arrays; None,
    which a record has for a member that is not finite, becomes NaN.
    """
    loss = np.asarray(validation["loss"], np.float64)
    return loss if "exact" not in validation else 1.0 - np.asarray(validation["exact"], np.float64) + 1e-4 * loss


def validation(record):
    """{"loss": ..., ...} of the validation rows from a record of metrics.jsonl; empty where it has none."""
    prefix = "validation_"
    return {name.removeprefix(prefix): value for name, value in record.items() if name.startswith(prefix)}
