"""Measure how often the next term after k terms is right: the arithmetic test of N8python/oeis-eval, in our format.

first + difference n,   difference from 1 to 1,000,   first from 0 to 1,000,   k = 2 .. 20 terms given

apformer train --digits 5 --max_difference 1000 --run_dir RUN && python experiments/oeis_protocol.py RUN
"""

import json
import sys
from dataclasses import dataclass

import numpy as np
from tyro.conf import Positional

from apformer import files, flags, runs
from apformer.errors import USAGE, UserError
from apformer.runs import directory
from apformer.tasks import settings_file
from apformer.tasks.exact_match import continue_rows
from apformer.tasks.progressions.generator import render
from apformer.tokenizers import digits as tokenizer


@dataclass(frozen=True)
class Protocol:
    """Measure how often a run predicts the next term after k terms of random progressions."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    tests: int = 1000
    """Progressions for each k."""
    seed: int = 0
    """Random seed of the progressions."""


def measure(path, tests, seed):
    """Return {k: share of right next terms}. Raises UserError (exit USAGE) if the digits of the run do not fit."""
    settings = settings_file.read(path)
    if settings.task not in ("progressions", "digits"):
        raise UserError(f"{path} is of the task {settings.task}: give a run of progressions", USAGE)
    digits = settings.data.digits
    if digits < 5:
        raise UserError(f"{path} has terms of {digits} digits, and 1000 + 1000 * 20 needs 5: train --digits 5", USAGE)
    if settings.task == "digits" and settings.data.order == "lsb":
        raise UserError(f"{path} writes the least significant digit first: give a run of --order msb", USAGE)
    random, rows, prompt_terms = np.random.default_rng(seed), [], range(2, 21)
    for k in prompt_terms:
        difference_B, first_B = random.integers(1, 1001, tests).tolist(), random.integers(0, 1001, tests).tolist()
        rows += [render(a, d, k + 1, digits) for a, d in zip(first_B, difference_B, strict=True)]
    model = runs.load(path).model
    next_BN = continue_rows([tokenizer.encode(row[: -digits - 1]) for row in rows], digits + 1, model)
    right = [row.endswith(tokenizer.decode(next_N)) for row, next_N in zip(rows, next_BN, strict=True)]
    return dict(zip(prompt_terms, np.reshape(right, (len(prompt_terms), tests)).mean(axis=1).tolist(), strict=True))


def run(args):
    """Print the shares, and write them to the run directory."""
    for flag, least in (("tests", 1), ("seed", 0)):
        flags.require(flag, getattr(args, flag) >= least, args, f"at least {least}")
    path = directory.find(args.run)
    shares = measure(path, args.tests, args.seed)
    files.write_json(path / "oeis_protocol.json", {"tests": args.tests, "seed": args.seed, "exact": shares})
    print(json.dumps({k: f"{share:.1%}" for k, share in shares.items()}, indent=1))


def main():
    """Run the script, and return its exit code."""
    return flags.script("oeis_protocol.py", Protocol, run)


if __name__ == "__main__":
    sys.exit(main())
