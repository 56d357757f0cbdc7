"""A damaged checkpoint comes back bit for bit when its run is resumed, wherever in the chain it was.

In each case some of the checkpoints of a run are damaged, in one of nine ways each. The run is finished, or was stopped
between two checkpoints. Then `apformer resume` runs to its end, and its directory is compared with that of the run to
which nothing happened: the sha256 of the arrays and all else that the manifests say, metrics.jsonl and evaluation.json.
"""

import json
import shutil
import signal
from unittest import mock

import numpy as np
from faults import _damage

from apformer import cli
from apformer.errors import UserError
from apformer.report import progress
from apformer.runs import checkpoint, fit, manifest, restore, selection

QUESTION = "Does a damaged checkpoint come back?"
CLAIM = (
    "{healed:,} of {cases:,} runs with {damaged:,} damaged checkpoints ended with the bits of the run to which nothing "
    "had happened, after `apformer resume` ({again:,} checkpoints computed again)"
)
CASES = 200
SEED = 6


def measure(cases, folder):
    """Figures of `cases` damaged runs; what goes wrong is said on standard error."""
    whole = _damage.run(folder / "whole")
    stopped = _stopped(shutil.copytree(whole, folder / "stopped"))
    want, count = {"exit code": 0} | _told(whole), {"cases": cases, "healed": 0, "damaged": 0, "again": 0}
    for case in progress.bar(range(cases), unit="case"):
        rng, copy = np.random.default_rng([SEED, case]), folder / "copy"
        source = whole if case % 2 else stopped
        shutil.copytree(source, copy)
        path, saved = copy / "checkpoints", selection.steps(copy / "checkpoints")
        hurt = sorted(int(step) for step in rng.choice(saved, rng.integers(1, len(saved) + 1), replace=False))
        kinds = [str(rng.choice([*_damage.KINDS])) for _ in hurt]
        for step, kind in zip(hurt, kinds, strict=True):
            other = rng.choice([other for other in saved if other != step])
            # Of the source, whose manifests are still their own.
            _damage.inflict(rng, kind, path / str(step), source / "checkpoints" / str(other), manifest.NAME)
        with _damage.quiet() as said:
            code = cli.main(["resume", str(copy)])
        try:
            found = {"exit code": code} | _told(copy)
        except UserError as fault:
            found = {str(fault): None}
        differ = [name for name, value in found.items() if name not in want or value != want[name]]
        if differ:
            progress.write(f"seed {SEED}, case {case}, steps {hurt} of {saved}, {kinds}: {differ}\n{said.getvalue()}")
        count["healed"] += not differ
        count["damaged"] += len(hurt)
        count["again"] += said.getvalue().count(" is there again, ")
        shutil.rmtree(copy)
    return count


def _stopped(path):
    """The same run, as SIGTERM leaves it in the chunk that ends at step 45: its checkpoints, and one of that step."""
    run_steps = fit.run_steps

    def stopped(*args):
        signal.raise_signal(signal.SIGTERM)
        return run_steps(*args)

    with _damage.quiet(), mock.patch.object(fit, "run_steps", stopped):
        code = cli.main(["resume", str(path), "--step", "40"])
    if code != 143 or selection.steps(path / "checkpoints")[-1] != 45:
        raise RuntimeError(f"a run that was stopped ended with {code}")
    return path


def _told(path):
    """What has to be the same: {name: value}. Files of orbax have random names, so arrays stand for them."""
    abstract, found = fit.abstract_state(restore.load_settings(path)), {}
    for step in selection.steps(path / "checkpoints"):
        checkpoint.load(path / "checkpoints", abstract, step)  # which compares the arrays with their sha256
        facts = selection.facts_of(path / "checkpoints" / str(step))
        found[f"checkpoint {step}"] = {name: fact for name, fact in facts.items() if name != "files"}
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
    found["evaluation.json"] = json.loads((path / "evaluation.json").read_text())
    found["checkpoints"] = sorted(entry.name for entry in (path / "checkpoints").iterdir())
    return found
