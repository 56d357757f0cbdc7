"""Run the fault trials and record the results: `python experiments/reliability.py [NAME ...] --record`.

A file of experiments/faults/ holds one promise and its trial: QUESTION, CLAIM, CASES, and measure(cases, folder), which
returns the figures that the claim names. With --record each becomes a record. docs/reliability.md shows them.
"""

import contextlib
import importlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import reproduce
import tables
from faults import _runs
from tyro.conf import Positional

from apformer import flags
from apformer.errors import USAGE, UserError

HERE = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in (HERE / "faults").glob("[a-z]*.py")))


@dataclass(frozen=True)
class Reliability:
    """Run the fault trials, and print or record the results."""

    names: Positional[tuple[str, ...]] = NAMES
    """Trials to run. The default is all of them."""
    cases: int | None = None
    """Cases of each trial. The default is the trial's own number."""
    folder: str | None = None
    """Folder for results, from which the same command continues after a stop. The default is a temporary one."""
    record: bool = False
    """Write a record of each trial, and update the tables of the README files."""
    loaded: bool = False
    """With --record: note that other jobs ran on the same cores."""
    yardstick: float | None = None
    """With --record: seconds that bench/yardstick.py took on this machine, just before or after."""


def main(args):
    """Run each trial and print its result; with --record, write its record."""
    if unknown := set(args.names) - set(NAMES):
        known = ", ".join(NAMES)
        raise UserError(f"there is no trial {', '.join(sorted(unknown))}: give one of {known}", USAGE)
    flags.require("cases", args.cases is None or args.cases >= 1, args, "at least 1")
    for name in args.names:
        trial, start = importlib.import_module(f"faults.{name}"), time.monotonic()
        with (
            tempfile.TemporaryDirectory() if args.folder is None else _cleared_folder(Path(args.folder, name)) as folder
        ):
            continues = Path(folder, _runs.FOUND).exists()
            figures = trial.measure(trial.CASES if args.cases is None else args.cases, Path(folder))
        table, size = figures.pop("table", None), f" --cases {args.cases}" * (args.cases is not None)
        command = f"python experiments/reliability.py {name}{size}"
        draft = {"question": trial.QUESTION, "claim": trial.CLAIM, "spread": {}}
        seconds = None if continues else time.monotonic() - start
        record = reproduce.updated_record(draft, command, figures, seconds, args)
        record |= {} if table is None else {"table": table}
        print(f"{name}: {tables.claim(record)}", flush=True)
        if args.record:
            path = reproduce.RECORDS / f"faults-{name.replace('_', '-')}.json"
            path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    if args.record:
        with contextlib.redirect_stdout(sys.stderr):
            tables.main(tables.Tables())


@contextlib.contextmanager
def _cleared_folder(folder):
    """Yield a folder that is emptied of all but the results of an earlier trial."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _runs.FOUND:
            entry.unlink()
    yield folder


if __name__ == "__main__":
    sys.exit(flags.script("reliability.py", Reliability, main))
