"""Test that a damaged checkpoint is never loaded as if it were sound.

Each case damages the newest checkpoint of a trained run, the newest two, or an older one, with nine kinds of damage in
turn. The run is then loaded as `resume` loads it, and every array is compared bit for bit with what was saved.
"""

import jax
import numpy as np
from faults import _damage, _runs

from apformer.errors import UserError
from apformer.report import progress
from apformer.runs import checkpoint, fit, restore, selection

QUESTION = "What comes of a checkpoint that the disk has damaged?"
CLAIM = (
    "{silent:,} of {cases:,} damaged checkpoints were loaded with wrong numbers. Where the newest was damaged "
    "({newest:,} times), the newest intact one was loaded instead, bit for bit, {back:share} of the time. Where an "
    "older one was ({older:,} times), it was named and set aside {refused:share} of the time, and the newest was "
    "loaded. {harmless:,} times the damaged bytes are never read, and the numbers were right."
)
CASES = 20_000
SEED = 16


def measure(cases, folder):
    """Return figures for `cases` damaged checkpoints of one run; print failures to standard error."""
    run = _damage.run(folder / "run")
    path, abstract = run / "checkpoints", fit.abstract_state(restore.load_settings(run))
    saved = selection.steps(path)
    bits = {step: _bits(checkpoint.load(path, abstract, step)[1]) for step in saved}
    count = dict.fromkeys(("silent", "harmless", "back", "not back", "refused", "not refused"), 0)
    for case in progress.bar(range(cases), unit="case"):
        kind, rng = [*_damage.KINDS][case % len(_damage.KINDS)], np.random.default_rng([SEED, case])
        damaged_steps = [saved[-1:], saved[-2:], [int(rng.choice(saved[:-1]))]][int(rng.integers(3))]
        before = {}
        for step in damaged_steps:
            other = path / str(rng.choice([step for step in saved if step not in damaged_steps]))
            before |= _damage.inflict(rng, kind, path / str(step), other, selection.FILE.name)
        try:
            with _damage.quiet():
                outcome, why = _outcome(path, abstract, bits, damaged_steps), ""
        except Exception as error:  # not a UserError
            outcome, why = "not back" if saved[-1] in damaged_steps else "not refused", repr(error)
        finally:
            for aside in path.glob("*.corrupt"):
                aside.rename(path / aside.stem)
            _damage.undo(before)
        count[outcome] += 1
        if outcome in ("silent", "not back", "not refused"):
            name = f"seed {SEED}, case {case}, {kind}, steps {damaged_steps}"
            progress.write(f"{outcome}: {name}, {[*map(str, before)]} {why}")
    for step in saved:  # raises if a checkpoint was not restored
        _runs.arrays_of(path / str(step))
    newest, older = count["back"] + count["not back"], count["refused"] + count["not refused"]
    shares = {"back": count["back"] / max(1, newest), "refused": count["refused"] / max(1, older)}
    return {**count, **shares, "cases": cases, "newest": newest, "older": older}


def _outcome(path, abstract, bits, damaged_steps):
    """Return the outcome of loading, a key of `count` in `measure`."""
    saved = [*bits]
    try:
        step, state = checkpoint.load(path, abstract)
    except UserError:
        return "not back"
    if _bits(state) != bits[step]:
        return "silent"
    if saved[-1] in damaged_steps:
        expected = max(step for step in saved if step not in damaged_steps)
        return "back" if step == expected else "harmless" if step in damaged_steps else "not back"
    if step != saved[-1]:
        return "not refused"
    try:
        _, state = checkpoint.load(path, abstract, damaged_steps[0])
    except UserError:
        return "refused" if (path / f"{damaged_steps[0]}.corrupt").exists() else "not refused"
    return "harmless" if _bits(state) == bits[damaged_steps[0]] else "silent"


def _bits(state):
    leaves, _ = jax.tree.flatten(state)
    keys = (
        jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in leaves
    )
    return [(str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()) for leaf in keys]
