"""Write the tables of README.md and of this folder from the records: `python experiments/tables.py`.

A record is a file records/NAME.json with one result: the question, the command, the figures, the machine, the time.
A comment in a Markdown file says which records its table shows:

    <!-- summary: exact-3 sketch -->      a row for each record: command, answer, time
    <!-- results: exact-3 sketch -->      question, answer, time; on the site the command and the machine, too
    <!-- details: positions -->           the whole table that one record holds
    <!-- end -->

The text between the two comments is replaced. `--check` writes nothing, and exits with 1 if a table is out of date.
Pages of docs/ have only the first comment: docs/hooks.py writes their tables when the site is built. A command that
needs the laboratory has the word *laboratory* beside it.
"""

import json
import re
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from apformer import flags
from apformer.report import sections

HERE = Path(__file__).parent
FILES = (HERE.parent / "README.md", HERE / "README.md")
MARKER = re.compile(r"(<!-- (summary|results|details): ([\w .-]+) -->\n)(?:(?:.+\n)*?(<!-- end -->))?")


@dataclass(frozen=True)
class Tables:
    """Write the tables of the README files from the records."""

    check: bool = False
    """Write nothing; exit with 1 if a table differs from its records."""


def read(name):
    """Read a record by its name."""
    return json.loads((HERE / "records" / f"{name}.json").read_text("utf-8"))


def claim(record):
    """Return the claim of a record with its figures in place of their names: `{excess:.4f}` becomes 0.0017.

    A format is Python's, or `share`: 1 becomes 100.00 %, and anything less stays below that.
    """

    def figure(match):
        value = record["figures"][match[1]]
        return share(value) if match[2] == "share" else format(value, match[2])

    return re.sub(r"\{([\w. -]+):([^{}]*)\}", figure, record["claim"])


def share(value):
    """Format a share in percent, where only 1 becomes 100.00 %."""
    return f"{100 if value == 1 else min(100 * value, 99.99):.2f} %"


def command(record):
    """Return the command of a record for readers: without --run_dir RUN, and marked if it needs the laboratory."""
    needs = ", *laboratory*" if needs_laboratory(record["command"]) else ""
    return f"`{record['command'].removesuffix(' --run_dir RUN')}`{needs}"


@cache
def laboratory():
    """Return the names of the recipes in lab/, which are the names of its tasks."""
    project = tomllib.loads((HERE / "lab" / "pyproject.toml").read_text("utf-8"))["project"]
    return frozenset(project["entry-points"]["apformer.tasks"])


def needs_laboratory(command):
    """Return whether a command runs a recipe, a module or a script that needs the package in lab/."""
    scripts = [HERE.parent / name for name in re.findall(r"experiments/[\w/]+\.py", command)]
    texts = [command, *(path.read_text("utf-8") for path in scripts if path.is_file())]
    return any("apformer_lab" in text for text in texts) or not laboratory().isdisjoint(
        re.findall(r"--recipe (\w+)", command)
    )


def duration(seconds):
    """Format seconds, as in 4 min 6 s."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    hours, minutes = divmod(round(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {round(seconds) % 60} s".removesuffix(" 0 s")


def time(record):
    """Format the time of a record, marked as loaded if other jobs ran beside it; - if it was not measured."""
    return "-" if record["seconds"] is None else duration(record["seconds"]) + ", loaded" * record["loaded"]


def yardsticks(record):
    """Format the time as a multiple of the yardstick; "" if one of them was not measured."""
    if record["seconds"] is None or record["yardstick"] is None:
        return ""
    return f", {record['seconds'] / record['yardstick']:.1f} yardsticks"


def machine(record):
    """Return the processor, the threads and the version of apformer, as text."""
    return f"{record['processor']}, {sections.count(record['threads'], 'thread')}, {record['version']}"


def summary(records):
    """Return a Markdown table of records: command, answer, time."""
    rows = [[command(record), claim(record), time(record)] for record in records]
    return markdown([["command", "answer", "time"], *rows])


def results(records):
    """Return a Markdown table of records: question, answer, time. The question links to the record with the command."""
    rows = [[f"[{each['question']}](records/{each['name']}.json)", claim(each), time(each)] for each in records]
    return markdown([["question", "answer", "time"], *rows])


def full_table(records):
    """Return a Markdown table of records: question, command, answer, time, machine and version."""
    rows = [
        [record["question"], command(record), claim(record), time(record) + yardsticks(record), machine(record)]
        for record in records
    ]
    return markdown([["question", "command", "answer", "time", "machine, version"], *rows])


def details(records):
    """Return the table that the only record holds, as Markdown."""
    (record,) = records
    return markdown(record["table"])


def markdown(rows):
    """Return rows of text as a Markdown table; the first is the head."""
    head, *body = rows
    edge = "" if all(row[0] for row in rows) else "| "  # an empty first cell needs it
    return "\n".join(edge + " | ".join(row) for row in [head, ["---"] * len(head), *body])


def write(text, results=results):
    """Return the text of a Markdown file with every marked table renewed; `results` formats the tables of that name."""
    kinds = {"summary": summary, "results": results, "details": details}

    def table(match):
        records = [read(name) | {"name": name} for name in match[3].split()]
        return f"{match[1]}{kinds[match[2]](records)}\n{match[4] or ''}"

    return MARKER.sub(table, text)


def main(args):
    """Write the files, or compare them."""
    stale = [path for path in FILES if write(path.read_text("utf-8")) != path.read_text("utf-8")]
    for path in stale:
        if args.check:
            print(f"{path}: a table differs from its records; run `python experiments/tables.py`", file=sys.stderr)
        else:
            path.write_text(write(path.read_text("utf-8")), "utf-8")
            print(path)
    if stale and args.check:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(flags.script("tables.py", Tables, main))
