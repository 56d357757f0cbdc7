"""Interrupt a run of three checkpoints at every system call on its directory, and test it on a disk that lies.

A library that is loaded before the C library (_shim.c) counts the calls that open, write, sync, create, rename, remove
or truncate files below the run's directory, in all threads, and injects one of six faults at call N: SIGKILL; ENOSPC,
EIO or EROFS from there on; a short write; a failed fsync. (`strace --inject` does the same, but needs a process of its
own and takes four times as long.) Then the run is resumed without a fault.

The process cannot notice four more faults: a write that is acknowledged and lost, that goes to another place of its
file, or to a file that was written before; and a clock that is set back by a day. For these the promise is that nothing
is silently wrong: the run ends as the undisturbed one, or a command refuses it with one sentence.
"""

import shutil
import signal
from functools import partial

import numpy as np
from faults import _runs

from apformer.errors import CHECKPOINT, DISK

QUESTION = "Is anything lost or silently wrong when a run is cut at any of its system calls, or its disk lies?"
CLAIM = (
    "{cases:,} faults in runs of 3 checkpoints: SIGKILL at each of the {calls:,} system calls that touch the "
    "directory of the run, or ENOSPC, EIO or EROFS from it; each write cut short; each fsync failed; {lies:,} writes "
    "lost or misdirected, or a clock set back. {lost:,} checkpoints that were on the disk were lost, {unequal:,} "
    "resumed runs differ from the undisturbed one, {unsaid:,} ended without the documented exit code and sentence. Of"
    " the lost and misdirected writes and the clocks, {refused:,} were refused with a sentence, and {silent:,} were "
    "silently wrong."
)
# The calls at which each fault is injected, by the letters of _shim.c.
APPLIES = {
    "kill": "rowsmnut",
    "full": "owmn",
    "broken": "rowsmnut",
    "readonly": "owmnut",
    "short": "w",
    "fsync": "s",
    "lost": "w",
    "shifted": "w",
    "elsewhere": "w",
}
LIES = ("lost", "shifted", "elsewhere", "clock")
DAY = 86_400  # seconds
CASES = 10_000  # more than there are: all of them


def measure(cases, folder):
    """Return {cases, calls, lies, lost, unequal, unsaid, refused, silent} for that many cases, evenly chosen."""
    shim, reason = _runs.shim(folder)
    if shim is None:
        raise RuntimeError(reason)
    expected, kinds = {}, {}
    with _runs.Server(folder / "first", shim) as server:
        for name, keep in (("compiles", 1), ("one", 1), ("two", 2)):
            run = folder / name
            done = server.run(_runs.train_args(folder, run, keep), fork=False, fault=(run, "none", 0, 0))
            if done.code:
                raise RuntimeError(f"an undisturbed run ends with {done.code}: {done.err}")
            expected[keep], kinds[keep] = _runs.end_of(run), done.kinds
    every = _cases(kinds)
    chosen = [every[k] for k in np.unique(np.linspace(0, len(every) - 1, min(cases, len(every))).astype(int))]
    work = partial(_case, folder=folder, expected=expected)
    found = [each for each in _runs.map_cached(chosen, work, folder, shim, desc="calls") if each is not None]
    figures = {
        name: sum(each.get(name, 0) for each in found) for name in "lies lost unequal unsaid refused silent".split()
    }
    return {"cases": len(found), "calls": len(kinds[1])} | figures


def _cases(kinds):
    """Return [(fault, number of the call)] of all cases. Faults in LIES use a run that keeps two checkpoints."""
    found = []
    for fault, letters in APPLIES.items():
        of_run = kinds[2 if fault in LIES else 1]
        found += [(fault, number) for number, kind in enumerate(of_run, 1) if kind in letters]
    return found + [("clock", number) for number in range(1, len(kinds[2]), 25)]


def _case(server, case, folder, expected):
    """Return {figure: count} for one fault at one call; None if the run ended before it."""
    fault, number = case
    keep, faults = 2 if fault in LIES else 1, []
    run = folder / f"run-{fault}-{number}"
    # The clock is set back in the resumed run, after a kill.
    injected = (run, "kill" if fault == "clock" else fault, number, number)
    kill = injected[1] == "kill"
    done = server.run(_runs.train_args(folder, run, keep), fork=kill, fault=injected)
    if done.code != -signal.SIGKILL if kill else not done.fired:
        shutil.rmtree(run, ignore_errors=True)
        return None
    explained = kill or done.code == 0 or (done.code in (CHECKPOINT, DISK) and _runs.sentence_of(done))
    if not explained or "Traceback" in done.err:
        _runs.record_failure(faults, "unsaid", case, done)
    newest, sound = max(done.saved, default=-1), _runs.newest_sound(run)
    if fault not in LIES and sound < newest:
        _runs.record_failure(faults, "lost", f"{case}, step {newest} was on the disk, and {sound} is sound", done)
    if fault not in LIES and done.code == 0 and (differing := unreported_differences(run, done, expected[keep])):
        _runs.record_failure(faults, "unequal", f"{case} ended with exit 0 and {differing}", done)
    resumed = server.resume(folder, run, keep, fork=False, clock=-DAY if fault == "clock" else 0.0)
    at = _runs.resumed_at(resumed)
    if fault not in LIES and newest > 0 and (at is None or at < newest):
        loss = f"{case}, step {newest} was on the disk, and it resumed from {at}"
        _runs.record_failure(faults, "lost", loss, resumed)
    if fault in LIES and resumed.code in (CHECKPOINT, DISK) and _runs.sentence_of(resumed):
        faults.append("refused")
    elif resumed.code or (differing := unreported_differences(run, resumed, expected[keep])):
        name = "silent" if fault in LIES else "unequal"
        _runs.record_failure(faults, name, f"{case}, exit {done.code}, then {resumed.code or differing}", resumed)
    shutil.rmtree(run, ignore_errors=True)
    return {name: faults.count(name) for name in {*faults}} | {"lies": fault in LIES}


def unreported_differences(run, outcome, expected):
    """Return the differences from the undisturbed run, without those reported and checkpoints set aside."""
    try:
        found = _runs.end_of(run)
    except Exception as error:  # a file that is missing or damaged, in whatever way
        return repr(error)
    aside = {name.removesuffix(".corrupt") for name in found["others"]}  # each was reported
    found["others"], checkpoints = [], expected["checkpoints"]
    remaining = {step: facts for step, facts in checkpoints.items() if step not in aside}
    remaining |= {step: checkpoints.get(step) for step in found["checkpoints"]}
    expected = expected | {"checkpoints": remaining}
    if "\nNo page: " in outcome.out:  # a missing page fails no run
        # If the disk fails from some call on, an unfinished page cannot be removed either: resume removes it.
        found["files"] = sorted({name for name in found["files"] if ".report.html." not in name} | {"report.html"})
    if "metrics.jsonl has lost lines" in outcome.err:
        found.pop("metrics")
        expected = {name: value for name, value in expected.items() if name != "metrics"}
    return _runs.differences(found, expected)
