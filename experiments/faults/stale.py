"""Set one directory of a run back to its entries at an earlier moment, and resume the run.

This happens in a power failure if a directory was not forced to the disk, or the disk lied about it. Each case kills a
run at one of its system calls, copies it, resumes it and kills it again at another call. One of its directories then
gets the entries of the copy: new entries are removed, and removed ones restored. Then the run is resumed. It has to end
as the undisturbed one does, or a command has to refuse it with one sentence.
"""

import shutil
import signal
from functools import partial

import numpy as np
from faults import _runs, calls

from apformer.errors import CHECKPOINT, DISK

QUESTION = "Does a directory that is older than its files make a run silently wrong?"
CLAIM = (
    "{cases:,} runs in which one directory was put back to its state at an earlier system call: {equal:,} ended, once"
    " resumed, bit for bit as the undisturbed run, {refused:,} were refused with a sentence, {silent:,} were silently"
    " wrong. {of_checkpoints:,} times it was the directory of all checkpoints, {of_one:,} times one within it."
)
CASES = 1000
SEED = 16
KEEP = 2  # checkpoints besides the best, so that some are removed
TRIES = 20  # attempts to find two moments between which a directory changed


def measure(cases, folder):
    """Return {cases, equal, refused, silent, of_checkpoints, of_one} for that many runs."""
    shim, reason = _runs.shim(folder)
    if shim is None:
        raise RuntimeError(reason)
    with _runs.Server(folder / "first", shim) as server:
        for name in ("compiles", "whole"):
            run = folder / name
            done = server.run(_runs.train_args(folder, run, KEEP), fork=False, fault=(run, "none", 0, 0))
            if done.code:
                raise RuntimeError(f"an undisturbed run ends with {done.code}: {done.err}")
    work = partial(_case, folder=folder, expected=_runs.end_of(run), most=len(done.kinds))
    found = _runs.map_cached(range(cases), work, folder, shim, desc="stale")
    figures = {name: sum(each[0] == name for each in found) for name in ("equal", "refused", "silent")}
    places = {"of_checkpoints": "checkpoints", "of_one": "checkpoints/"}
    figures |= {name: sum(each[1].rstrip("0123456789") == place for each in found) for name, place in places.items()}
    return {"cases": len(found)} | figures


def _case(server, case, folder, expected, most):
    """Return ("equal", "refused" or "silent", the directory that was set back) of one case."""
    rng, run, copy = np.random.default_rng((SEED, case)), folder / f"run-{case}", folder / f"copy-{case}"
    for _ in range(TRIES):
        for path in (run, copy):
            shutil.rmtree(path, ignore_errors=True)
        first, second = (int(number) for number in rng.integers(1, most, 2))
        begun = server.run(_runs.train_args(folder, run, KEEP), fault=(run, "kill", first, first))
        if begun.code != -signal.SIGKILL or not run.is_dir():
            continue
        shutil.copytree(run, copy)
        server.resume(folder, run, KEEP, fault=(run, "kill", second, second))
        if directories := _changed_directories(copy, run):
            break
    else:
        raise RuntimeError(f"case {case}: no directory changed between two moments, {TRIES} times")
    place = directories[rng.integers(len(directories))]
    _forget(copy / place, run / place)
    faults, resumed = [], server.resume(folder, run, KEEP, fork=False)
    differing = None if resumed.code else calls.unreported_differences(run, resumed, expected)
    outcome = "equal"
    if resumed.code in (CHECKPOINT, DISK) and _runs.sentence_of(resumed):
        outcome = "refused"
    elif resumed.code or differing:
        outcome = "silent"
        description = f"case {case}, calls {first} and {second}, {place or 'the run'}: {resumed.code or differing}"
        _runs.record_failure(faults, outcome, description, resumed)
    for path in (run, copy):
        shutil.rmtree(path, ignore_errors=True)
    return outcome, place


def _changed_directories(earlier, later):
    """Return the directories in both whose entries differ, relative to the run; "" is the run itself."""
    both = [path.relative_to(earlier) for path in earlier.rglob("*") if path.is_dir()]
    places = [earlier.relative_to(earlier), *both]
    return [
        "" if place == places[0] else str(place)
        for place in places
        if (later / place).is_dir() and _names(earlier / place) != _names(later / place)
    ]


def _forget(earlier, later):
    """Set a directory back to its earlier entries; entries that are in both stay as they are."""
    for name in _names(later) - _names(earlier):
        path = later / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in _names(earlier) - _names(later):
        path = earlier / name
        shutil.copytree(path, later / name) if path.is_dir() else shutil.copy2(path, later / name)


def _names(folder):
    return {path.name for path in folder.iterdir()}
