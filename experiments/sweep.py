"""Compare combinations of flags, each with several seeds: `python experiments/sweep.py --position alibi,relative`.

What `apformer sweep --position alibi,relative` trains, measured on suites of rows that tell whether a model
generalizes; `--help` says how, and what it leaves.
"""

import sys

from studies import generalization

from apformer import cli, flags
from apformer.machine import devices, process


def run() -> None:
    """Run the sweep of the command line."""
    args, folder = flags.cut(sys.argv[1:], "compilation_cache", cli.VALUES["compilation_cache"])
    args, count = flags.cut(args, "devices", cli.VALUES["devices"])
    process.keep_programs(folder)
    if count is not None:
        devices.limit(count)
    generalization.sweep(args)


if __name__ == "__main__":
    sys.exit(process.guard("sweep.py", run))
