"""Shared by the studies: save each result, then write a table, a figure and numbers for a record.

RUN/
    study.json         the flags, and the results so far; after a stop, the same flags with --run_dir RUN continue
    evaluation.json    the numbers that a record may name
    table.json         the table of the record
    figures/NAME.png
"""

import dataclasses
import shlex
import sys
from pathlib import Path

import numpy as np

from apformer import files, flags
from apformer.commands import sweep
from apformer.errors import USAGE, UserError
from apformer.report import figures, tables
from apformer.runs import directory
from apformer.runs.restore import Run

COLOURS = ("#999999", "#56B4E9", "#0072B2", "#009E73", "#D55E00")


def spread(shares):
    """Format shares in percent as 98.4 (90.1 to 100.0): the median, and worst and best if they differ; - for none."""
    if not shares:
        return "-"
    middle, low, high = (tables.percent(float(share), 1, "") for share in (np.median(shares), min(shares), max(shares)))
    return middle if low == high else f"{middle} ({low} to {high})"


class Study:
    """The directory of a study, and its results: a dict that is saved with every new entry."""

    def __init__(self, name, args):
        """Make the directory, or continue in it. Raises UserError: USAGE if it was begun with other flags; DISK."""
        path = Path(args.run_dir or directory.dated(name))  # not a run, so runs/latest stays the same
        flag_values = files.plain(dataclasses.asdict(args) | {"run_dir": None})
        if not (path / "study.json").exists():
            directory.create(name, path)
            files.write_json(path / "study.json", {"flags": flag_values, "found": {}})
        saved = files.read_json(path / "study.json")
        if saved["flags"] != flag_values:
            raise UserError(f"{path} was begun with other flags: give another --run_dir", USAGE)
        self.name, self.path, self.flags, self.found = name, path, flag_values, saved["found"]
        print(f"{path}: after a stop, the same flags with --run_dir {path} continue", file=sys.stderr)

    def save(self, key, value):
        """Add a result, and save all of them."""
        self.found[key] = files.plain(value)
        files.write_json(self.path / "study.json", {"flags": self.flags, "found": self.found})

    def finish(self, numbers, table, figure):
        """Print the table, and write it, the numbers {name: number} and the figure."""
        files.write_json(self.path / "evaluation.json", numbers)
        files.write_json(self.path / "table.json", table)
        figures.save(self.path / "figures", {self.name: figure})
        print("\n".join(tables.columns(table)))
        print(f"\n{self.path / 'figures' / self.name}.png")


def train(study, name, **flags):
    """Train or continue a sweep with these flags in a folder of the study; return (path, a record of each member)."""
    flags |= {"run_dir": study.path / name}
    flags = {flag: value if isinstance(value, list) else shlex.quote(str(value)) for flag, value in flags.items()}
    path, result = sweep.run(flags, sweep.programs(flags))
    return path, result["members"]


def middle(values, digits=3):
    """Format values as 1.23 (1.20 to 1.30): the median, and least and greatest; - for none."""
    if not values:
        return "-"
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(np.median(values), min(values), max(values), d=digits)


def bars(panel, places, values, colours, width=0.8, label=None):
    """Draw a bar at each place: the median of its values, and a line from the least to the greatest."""
    middles = [np.median(group) if group else 0 for group in values]
    ends = [(m - min(group), max(group) - m) if group else (0, 0) for m, group in zip(middles, values, strict=True)]
    panel.bar(places, middles, width, yerr=np.transpose(ends).tolist(), color=colours, capsize=4, label=label)


def check_sizes(args, *names):
    """Raise UserError (exit USAGE) unless each of these flags is at least 1, or a list of such numbers."""
    for name in names:
        value = getattr(args, name)
        many = value if isinstance(value, tuple) else (value,)
        flags.require(name, many and min(many) >= 1, args, "at least 1")


def check_task(loaded: Run, task: str) -> None:
    """Raise UserError (exit USAGE) unless a run is of this task."""
    if loaded.settings.task != task:
        fault = f"{loaded.path} is a run of the task {loaded.settings.task}"
        raise UserError(f"{fault}: give one of the task {task}", USAGE)


def canvas(columns, rows=1, height=3.6):
    """Return (figure, panels) for a study, the panels as a flat list."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * columns, height * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        panel.set_axisbelow(True)
    return figure, panels


def set_length_axis(panel, lengths):
    """Make the x axis logarithmic, with these lengths as its ticks."""
    panel.set_xscale("log", base=2)
    panel.set_xticks(lengths, map(str, lengths))
    panel.xaxis.minorticks_off()
