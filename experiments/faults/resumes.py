"""Resume runs whose newest checkpoints are damaged: they have to end as the undamaged run does.

Each case damages some of the newest checkpoints of a finished run, each in one of nine ways. Then `apformer
resume` continues from the newest sound one to the end, and the directory is compared with that of the undamaged run:
the sha256 of the arrays and all other facts of each checkpoint, metrics.jsonl and evaluation.json.
"""

import shutil

import numpy as np
from faults import _damage, _runs

from apformer import cli
from apformer.errors import UserError
from apformer.report import progress
from apformer.runs import selection

QUESTION = "Does a run with damaged checkpoints end as if nothing had happened?"
CLAIM = (
    "{equal:,} of {cases:,} runs whose newest checkpoints were damaged ({damaged:,} in all) ended bit for bit as the "
    "undamaged run after `apformer resume`; {again:,} continued from an earlier checkpoint"
)
CASES = 200
SEED = 6


def measure(cases, folder):
    """Return figures for `cases` damaged runs; print failures to standard error."""
    intact_run = _damage.run(folder / "whole")
    expected, count = _runs.end_of(intact_run), {"cases": cases, "equal": 0, "damaged": 0, "again": 0}
    saved, names = selection.steps(intact_run / "checkpoints"), [*_damage.KINDS]
    for case in progress.bar(range(cases), unit="case"):
        rng, copy = np.random.default_rng([SEED, case]), shutil.copytree(intact_run, folder / "copy")
        damaged_steps = saved[-int(rng.integers(1, len(saved))) :]
        kinds = [names[rng.integers(len(names))] for _ in damaged_steps]
        for step, kind in zip(damaged_steps, kinds, strict=True):
            other = rng.choice([other for other in saved if other != step])
            # The other step is taken from the undamaged run.
            checkpoint, other = copy / "checkpoints" / str(step), intact_run / "checkpoints" / str(other)
            _damage.inflict(rng, kind, checkpoint, other, selection.FILE.name)
        with _damage.quiet() as printed:
            code = cli.main(["resume", str(copy)])
        # A damaged checkpoint older than the one resumed from stays damaged.
        lost = [step for step in damaged_steps if not _is_sound(copy / "checkpoints" / str(step))]
        for step in lost:
            shutil.rmtree(copy / "checkpoints" / str(step), ignore_errors=True)
        found = _runs.end_of(copy)
        found |= {"others": [], "checkpoints": expected["checkpoints"] | found["checkpoints"]}
        wrong = code or saved[-1] in lost
        differing = {"exit code": code, "lost": lost} if wrong else _runs.differences(found, expected)
        if differing:
            name = f"seed {SEED}, case {case}, steps {damaged_steps} of {saved}, {kinds}"
            progress.write(f"{name}: {differing}\n{printed.getvalue()}")
        count["equal"] += not differing
        count["damaged"] += len(damaged_steps)
        count["again"] += f"resumed at step {saved[-1]} " not in printed.getvalue()
        shutil.rmtree(copy)
    return count


def _is_sound(checkpoint):
    try:
        return bool(_runs.arrays_of(checkpoint))
    except UserError:
        return False
