"""Measure training on a folder of tokens that is larger than memory: `python experiments/bench/shards.py`.

    python experiments/bench/shards.py --gigabytes 10 --folder /tmp/tokens

The script writes random tokens to a new folder, and `apformer train` trains nanoGPT's CPU model on it, in a process of
its own. The peak resident memory of this process is printed beside that of a run on a megabyte of text. Then chunks of
50 steps on the folder, and on tokens in memory, are timed in turns. Before each chunk, the folder is dropped from the
system's cache, so that every window comes from the disk. Processor time is that of all threads; other jobs on the
machine change it less. The folder is deleted at the end.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
from machine import processor

from apformer import flags, tasks
from apformer.errors import USAGE, UserError
from apformer.runs import feed, fit, recipes
from apformer.tasks.text import shards
from apformer.tokenizers.text import Characters

CHARACTERS = "".join(map(chr, range(32, 97)))  # 65, as many as Shakespeare's
PART, VALIDATION = 2**24, 2**16
RECIPE = ["--recipe", "baby_gpt_cpu"]


@dataclass(frozen=True)
class Bench:
    """Train on a large folder of random tokens; print peak resident memory, and speed beside tokens in memory."""

    gigabytes: float = 10.0
    """Size of the folder."""
    folder: str | None = None
    """New folder, deleted at the end. The default is a temporary folder."""
    steps: int = 500
    """Steps of the run whose memory is measured."""
    turns: int = 25
    """Chunks of 50 steps that are timed for each; medians are printed."""


def write(folder, count, rng):
    """Write a folder of about `count` random tokens, with few for validation, so that validating takes little time."""
    writer = shards.Writer(folder, Characters(CHARACTERS))
    for _ in range(-(-count // PART)):
        writer.add(rng.integers(0, len(CHARACTERS), PART, np.uint16))
    writer.close(rng.integers(0, len(CHARACTERS), VALIDATION, np.uint16), VALIDATION)


def peak_memory(text, run_dir, steps):
    """Train on a text or a folder with `apformer train`; return its peak resident memory in bytes."""
    words = [*RECIPE, "--text", str(text), "--steps", str(steps), "--run_dir", str(run_dir)]
    process = subprocess.Popen([sys.executable, "-m", "apformer", "train", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"apformer train --text {text} ended with exit code {process.returncode}", process.returncode)
    return usage.ru_maxrss * 1024


def turns_of(folder, tokens):
    """Return ({name: function that trains a chunk of steps}, settings), for the folder and for tokens in memory."""
    settings = recipes.parse([*RECIPE, "--steps", "1000000", "--text", str(folder)])
    task = tasks.load(settings.task)
    settings, rows = task.load(settings)

    def turn(train_rows, source):
        state = fit.initial_state(settings)
        pieces = feed.pieces(source, state.key, settings.training, 0)

        def train():
            nonlocal state
            left = settings.training.log_every
            while left:
                steps, fed = next(pieces)
                state, metrics = fit.run_steps(state, train_rows, settings, steps, None, fed)
                jax.block_until_ready(metrics)
                left -= steps

        return train

    return {"folder": turn(None, task.feed(settings, rows)), "memory": turn(jnp.asarray(tokens), None)}, settings


def drop_page_cache(folder):
    """Drop the files of a folder from the system's cache."""
    for path in folder.glob("*.bin"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(args):
    """Run the measurements in a scratch folder, and delete it."""
    flags.require("turns", args.turns >= 1, args, "1 or more")
    scratch = Path(tempfile.mkdtemp() if args.folder is None else args.folder)
    scratch.mkdir(parents=True, exist_ok=True)
    if any(scratch.iterdir()):
        raise UserError(f"--folder {scratch} is not empty: name a new one", USAGE)
    try:
        measure(args, scratch)
    finally:
        shutil.rmtree(scratch)


def measure(args, scratch):
    """Write a folder of tokens, and print memory and speed of training on it."""
    folder, rng = scratch / "tokens", np.random.default_rng(0)
    folder.mkdir()
    start = time.perf_counter()
    write(folder, int(args.gigabytes * 1e9 / 2), rng)
    size = sum(path.stat().st_size for path in folder.glob("*.bin"))
    print(f"{processor()}, jax {jax.__version__}\n{size / 1e9:.2f} GB written in {time.perf_counter() - start:.0f} s")
    tokens = rng.integers(0, len(CHARACTERS), 10**6, np.uint16)
    (scratch / "small.txt").write_text(Characters(CHARACTERS).decode(tokens))
    for name, text in (("folder", folder), ("memory", scratch / "small.txt")):
        drop_page_cache(folder)
        print(f"{name}: {peak_memory(text, scratch / name, args.steps) / 1e6:,.0f} MB resident at most", flush=True)
    turns, settings = turns_of(folder, tokens)
    clocks = {"seconds": time.perf_counter, "processor time": time.process_time}
    found = {name: [] for name in turns}
    for number in range(args.turns + 1):
        for name in sorted(turns, reverse=number % 2):
            drop_page_cache(folder)
            starts = [clock() for clock in clocks.values()]
            turns[name]()
            if number:  # the first compiles
                found[name].append([clock() - start for clock, start in zip(clocks.values(), starts, strict=True)])
    count = settings.training.log_every * settings.training.batch_size * settings.data.context
    for name, times in found.items():
        print(f"{name}: {count / median(seconds for seconds, _ in times):,.0f} tokens a second")
    ratios = np.array(found["memory"]) / np.array(found["folder"])
    for clock, (low, middle, high) in zip(clocks, np.percentile(ratios, [25, 50, 75], axis=0).T, strict=True):
        print(f"folder / memory by {clock}: {middle:.3f}, half of the turns from {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    sys.exit(flags.script("shards.py", Bench, run))
