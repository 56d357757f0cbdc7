"""A run is killed at random moments, again and again, and resumed each time until it is done.

A chain is one run. Its first process is killed at a random moment. The next process resumes the run and is killed too,
and so on. The moment is drawn evenly over the time that an undisturbed run takes: compilation, training, saves,
evaluation and page. Every tenth process begins with the import of Python's modules; the others are forked after it.
"""

import shutil
import signal
from functools import partial

import numpy as np
from faults import _runs

QUESTION = "Is anything lost when a run is killed at any moment, again and again?"
CLAIM = (
    "{cases:,} SIGKILL at random moments, in {runs:,} runs killed up to {most:,} times over: {lost:,} checkpoints that "
    "were on the disk lost, {unequal:,} runs that ended with other bits than the undisturbed one."
)
CASES = 1000
CHAIN = 20  # kills that one process is dealt
TENTH = 10


def measure(cases, folder):
    """{cases, runs, most, lost, unequal} after that many kills."""
    times, wanted = _undisturbed(folder)
    chains = [(seed, min(CHAIN, cases - seed * CHAIN)) for seed in range(-(-cases // CHAIN))]
    work = partial(_chain, folder=folder, times=times, wanted=wanted)
    found = _runs.over(chains, lambda server, chain: work(server, *chain), folder, desc="kills")
    kills, lost, unequal = (sum(column, start=[]) for column in zip(*found, strict=True))
    return {"cases": sum(kills), "runs": len(kills), "most": max(kills), "lost": len(lost), "unequal": len(unequal)}


def _undisturbed(folder):
    """({fresh: seconds of a process}, what every run must end with)."""
    times = {}
    with _runs.Server(folder / "first") as server:
        for name, fresh in (("compiles", False), ("forked", False), ("fresh", True)):
            done = server.run(_runs.train_args(folder, folder / name), fresh=fresh)
            if done.code:
                raise RuntimeError(f"an undisturbed run ends with {done.code}: {done.err}")
            times[fresh] = done.seconds
    return times, _runs.end_of(folder / "forked")


def _chain(server, seed, kills, folder, times, wanted):
    """(how often each of its runs was killed, what was lost, what ended otherwise) of a chain of kills."""
    rng, counts, lost, unequal = np.random.default_rng((16, seed)), [], [], []
    while sum(counts) < kills:
        run = folder / f"run-{seed}-{len(counts)}"
        counts.append(0)
        case, saved, done = f"chain {seed} of {kills} kills, run {len(counts)}", -1, None
        while done is None or done.code == -signal.SIGKILL:
            left = sum(counts) < kills
            fresh = bool(rng.integers(TENTH) == 0)
            moments = [(rng.uniform(0, times[fresh]), signal.SIGKILL)] if left else []
            done = server.run(_runs.goes_on(folder, run), fresh=fresh, signals=moments)
            counts[-1] += done.code == -signal.SIGKILL
            at = _runs.resumed_at(done)
            if at is not None and at < saved:
                _runs.tell(lost, f"step {saved} was on the disk, and it went on from {at}", case, done)
            saved = max([saved, *done.saved])
            if _runs.newest_sound(run) < saved:
                _runs.tell(lost, f"step {saved} was on the disk, and is not", case, done)
        if done.code or (differing := _runs.differences(_runs.end_of(run), wanted)):
            _runs.tell(unequal, f"it ended otherwise ({done.code or differing})", case, done)
        shutil.rmtree(run, ignore_errors=True)
    return counts, lost, unequal
