"""Kill a run at random moments, again and again, and resume it each time until it is done.

The first process of a run is killed at a random moment. The next process resumes the run and is killed too, and so on.
The moment is drawn uniformly from the time that an undisturbed run takes: compilation, training, saves, evaluation and
page. About one process in ten begins with the import of Python's modules; the others are forked after it. A chain is a
series of runs with a given number of kills in all.
"""

import shutil
import signal
from functools import partial

import numpy as np
from faults import _runs

QUESTION = "Is anything lost when a run is killed at any moment, again and again?"
CLAIM = (
    "{cases:,} SIGKILLs at random moments of {runs:,} runs, each killed up to {most:,} times: {lost:,} checkpoints "
    "that were on the disk were lost, {unequal:,} runs ended differently from the undisturbed one."
)
CASES = 1000
CHAIN = 20  # kills in a chain
TENTH = 10


def measure(cases, folder):
    """Return {cases, runs, most, lost, unequal} after that many kills."""
    times, expected = _run_undisturbed(folder)
    chains = [(seed, min(CHAIN, cases - seed * CHAIN)) for seed in range(-(-cases // CHAIN))]
    work = partial(_chain, folder=folder, times=times, expected=expected)
    found = _runs.map_cached(chains, lambda server, chain: work(server, *chain), folder, desc="kills")
    kills, lost, unequal = (sum(column, start=[]) for column in zip(*found, strict=True))
    return {"cases": sum(kills), "runs": len(kills), "most": max(kills), "lost": len(lost), "unequal": len(unequal)}


def _run_undisturbed(folder):
    """Return ({fresh: seconds of a process}, `end_of` an undisturbed run)."""
    times = {}
    with _runs.Server(folder / "first") as server:
        for name, fresh in (("compiles", False), ("forked", False), ("fresh", True)):
            done = server.run(_runs.train_args(folder, folder / name), fresh=fresh)
            if done.code:
                raise RuntimeError(f"an undisturbed run ends with {done.code}: {done.err}")
            times[fresh] = done.seconds
    return times, _runs.end_of(folder / "forked")


def _chain(server, seed, kills, folder, times, expected):
    """Return (kills of each run, lost checkpoints, runs with a different end) of a chain."""
    rng, counts, lost, unequal = np.random.default_rng((16, seed)), [], [], []
    while sum(counts) < kills:
        run = folder / f"run-{seed}-{len(counts)}"
        counts.append(0)
        case, saved, done = f"chain {seed} of {kills} kills, run {len(counts)}", -1, None
        while done is None or done.code == -signal.SIGKILL:
            left = sum(counts) < kills
            fresh = bool(rng.integers(TENTH) == 0)
            moments = [(rng.uniform(0, times[fresh]), signal.SIGKILL)] if left else []
            done = server.resume(folder, run, fresh=fresh, signals=moments)
            counts[-1] += done.code == -signal.SIGKILL
            at = _runs.resumed_at(done)
            if at is not None and at < saved:
                _runs.record_failure(lost, f"step {saved} was on the disk, and it resumed from {at}", case, done)
            saved = max([saved, *done.saved])
            if _runs.newest_sound(run) < saved:
                _runs.record_failure(lost, f"step {saved} was on the disk, and is not", case, done)
        if done.code or (differing := _runs.differences(_runs.end_of(run), expected)):
            _runs.record_failure(unequal, f"it ended differently ({done.code or differing})", case, done)
        shutil.rmtree(run, ignore_errors=True)
    return counts, lost, unequal
