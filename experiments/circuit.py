"""Keep the circuit, weights written by hand, as a run: `python experiments/circuit.py --digits 3`, then

    apformer certify runs/circuit-3
    apformer predict runs/circuit-3 "007 010 013" --terms 3

Its loss means nothing: what it says of the first two terms, which nobody can foretell, is arbitrary.
"""

import sys
from dataclasses import dataclass

from apformer import circuit, experiment, flags, recipes
from apformer.data import progressions
from apformer.recipes import Settings, Training


@dataclass(frozen=True)
class Circuit:
    """Keep the circuit as a run."""

    digits: int = 3
    """Digits of a term."""
    min_difference: int = 1
    """Smallest difference that is certified; may be 0 or negative."""
    max_difference: int | None = None
    """Largest difference that is certified; 500, or the largest of so many digits."""
    run_dir: str | None = None
    """A new directory for the run; runs/circuit-<digits> if not given."""


def run(args):
    """Write the run, and say where it is."""
    largest = recipes.exact(args.digits).data.max_difference if args.max_difference is None else args.max_difference
    data = progressions.Config(args.digits, min_difference=args.min_difference, max_difference=largest)
    progressions.check(data)
    run_dir = args.run_dir or f"runs/circuit-{args.digits}"
    settings = Settings(Training(steps=1, run_dir=run_dir), circuit.config(args.digits), data)
    print(experiment.keep(settings, circuit.params(args.digits)))


def main():
    """Run; the exit code of the process."""
    return flags.script("circuit.py", Circuit, run)


if __name__ == "__main__":
    sys.exit(main())
