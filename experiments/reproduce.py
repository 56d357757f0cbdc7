"""Run the command of a record again, and compare the figures: `python experiments/reproduce.py exact-3 --seed 1`.

The run is a new directory, runs/<UTC time>-<name>. Figures come from the JSON files of the run. A figure that is in
none of them, such as the speed that a benchmark prints, has to be read in the output.

In the command of a record, RUN stands for the directory of the run. A new result begins as a file records/NAME.json
with "question", "claim" and "command"; `--record` writes everything else.
"""

import json
import platform
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import jax
import tables
from bench import machine
from tyro.conf import Positional

from apformer import flags
from apformer.errors import DATA, USAGE, UserError

RECORDS = tables.HERE / "records"
PYTHON = {
    "python": [sys.executable],
    "apformer": [sys.executable, "-m", "apformer"],
    "pytest": [sys.executable, "-m", "pytest"],
}
FILES = ("evaluation.json", "oeis_protocol.json", "certificate.json")  # if two hold the same name, the last one counts
TABLE = "table.json"  # rows of cells; the first is the head
NOT_CERTIFIED = 8  # an exit code that is an answer, not a failure


@dataclass(frozen=True)
class Reproduce:
    """Run the command of a record again, and print old figures beside new ones."""

    name: Positional[str | None] = None
    """Name of the record; --list prints all names."""
    list: bool = False
    """Print the name and the question of every record."""
    seed: int | None = None
    """Random seed for the command; its own seed if not given."""
    record: bool = False
    """Write the new figures, the time and the machine into the record."""
    yardstick: float | None = None
    """Seconds that bench/yardstick.py took on this machine, just before or after; with --record, it is recorded."""
    loaded: bool = False
    """With --record: note that other jobs ran on the same cores."""


def names():
    """Return the sorted names of all records."""
    return sorted(path.stem for path in RECORDS.glob("*.json"))


def set_seed(command, seed):
    """Return a command with another random seed. Raises UserError (exit USAGE) if the command makes no run."""
    if "--run_dir RUN" not in command:
        raise UserError(f"--seed {seed} has no use for `{command}`, which makes no run: leave it out", USAGE)
    return re.sub(r" --seed \d+", "", command).replace("--run_dir RUN", f"--seed {seed} --run_dir RUN", 1)


def parts(command, run):
    """Return the argument list of each part of a command joined by &&, for a run in the directory `run`."""
    words = [[re.sub(r"^RUN(?=/|$)", str(run), word) for word in shlex.split(part)] for part in command.split(" && ")]
    return [[argument for word in part for argument in PYTHON.get(word, [word])] for part in words]


def execute(command, run):
    """Run all parts of a command, and return the seconds. Raises UserError with the exit code of a part that fails."""
    start = time.perf_counter()
    for words in parts(command, run):
        code = subprocess.run(words).returncode
        if code not in (0, NOT_CERTIFIED):
            raise UserError(f"`{shlex.join(words)}` ended with exit code {code}: fix what it names, and repeat", code)
    return round(time.perf_counter() - start, 1)


def figures(run):
    """Return {dotted name: value} of all figures in the JSON files of a run."""
    found = {}
    for file in FILES:
        if (run / file).exists():
            found |= flatten(json.loads((run / file).read_text("utf-8")))
    if (run / "suites.json").exists():
        found |= sweep_figures([*json.loads((run / "suites.json").read_text("utf-8")).values()])
    return found


def sweep_figures(members):
    """Return the figures of a sweep: members, certified ones, and the least, median and largest of their margins."""
    verdicts = [member.get("certified") for member in members]
    margins = [member["smallest_margin"] for member, certified in zip(members, verdicts, strict=True) if certified]
    found = {"members": len(members)}
    if {*verdicts} != {None}:  # None: too many contexts to certify in a sweep
        found["certified"] = verdicts.count(True)
    if margins:
        found |= {"least_margin": min(margins), "median_margin": median(margins), "largest_margin": max(margins)}
    return found


def flatten(tree):
    """Return {dotted name: leaf} of nested dicts and lists."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def figure_names(record):
    """Return the names of a record's figures: those it holds, and those its claim refers to."""
    return list(dict.fromkeys([*record.get("figures", {}), *re.findall(r"\{([\w. -]+):", record["claim"])]))


def compare(record, new):
    """Return (lines of the comparison, whether every figure is within the spread of the record)."""
    old, spread = record.get("figures", {}), record.get("spread", {})
    lines, fits = [f"{'figure':36}{'recorded':>14}{'now':>14}  spread"], True
    for name in figure_names(record):
        verdict = "" if name in new else "in no file of the run: read the output above"
        if name in spread:
            low, high = spread[name]
            inside = name in new and low <= new[name] <= high
            fits &= inside
            verdict = f"{low:g} to {high:g}: {'within' if inside else 'OUTSIDE' if name in new else 'MISSING'}"
        lines.append(f"{name:36}{number(old.get(name)):>14}{number(new.get(name)):>14}  {verdict}".rstrip())
    return lines, fits


def select_figures(record, new):
    """Return the new values of a record's figures. Raises UserError (exit DATA) that names the missing ones."""
    missing = [name for name in figure_names(record) if name not in new]
    if missing:
        raise UserError(f"no file of the run gives {', '.join(missing)}: write the record by hand", DATA)
    return {name: new[name] for name in figure_names(record)}


def number(value):
    """Format an integer in full, another figure with seven significant digits, and None as -."""
    return "-" if value is None else f"{int(value):,}" if value == int(value) else f"{value:.7g}"


def updated_record(record, command, new, seconds, args, table=None):
    """Return the record with the figures, table, time and machine of a new run."""
    versions = machine.versions()
    new_record = record | {
        "command": command,
        "commit": commit(),
        "version": versions.get("apformer"),
        "recorded": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": machine.processor(),
        "threads": machine.threads(),
        "loaded": args.loaded,
        "python": platform.python_version(),
        "versions": versions,
        "yardstick": args.yardstick,
        "seconds": seconds,
        "figures": select_figures(record, new),
        "spread": record.get("spread", {}),
        "notes": record.get("notes", ""),
    }
    new_record.pop("table", None)  # of the earlier run
    return new_record | ({"table": table} if table else {})


def commit():
    """Return the commit of this directory, with -dirty if another file than a record differs; None without a commit."""
    git = ["git", "-C", str(tables.HERE)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        return None
    diff = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/", ":!records"], capture_output=True)
    return head.stdout.strip() + ("-dirty" if diff.returncode else "")


def run(args):
    """List the records, or run one again."""
    if args.list:
        print("\n".join(f"{name:32}{tables.read(name)['question']}" for name in names()))
        return
    if args.name not in names():
        fault = "name a record" if args.name is None else f"there is no record {args.name}"
        raise UserError(f"{fault}: give one of {', '.join(names())}", USAGE)
    record = tables.read(args.name)
    directory, command = Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{args.name}", record["command"]
    if args.seed is not None:
        directory, command = Path(f"{directory}-seed-{args.seed}"), set_seed(command, args.seed)
    seconds = execute(command, directory)
    new = figures(directory)
    lines, fits = compare(record, new)
    old_time = "-" if record.get("seconds") is None else tables.time(record)
    print("\n".join([*lines, f"{'time':36}{old_time:>14}{tables.duration(seconds):>14}", str(directory)]))
    if args.record:
        table = json.loads((directory / TABLE).read_text("utf-8")) if (directory / TABLE).exists() else None
        text = json.dumps(updated_record(record, command, new, seconds, args, table), indent=1, ensure_ascii=False)
        (RECORDS / f"{args.name}.json").write_text(text + "\n", "utf-8")
        print(f"{RECORDS / args.name}.json")
    if not fits:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(flags.script("reproduce.py", Reproduce, run))
