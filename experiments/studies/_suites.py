"""Draw the suites of `generalization.py`: rows are combinations of flags, panels are suites, dots are members."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from apformer.report import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODES = {"teacher_forced": ("teacher-forced", figures.SKY), "free_running": ("free-running", figures.BLUE)}


def draw(rows: list[tuple]) -> "Figure":
    """Draw combinations under each other: exact match while training, and every member as a dot on every suite.

    The curve is the median of the members' exact match in training, in a band from least to greatest.

    Args:
        rows: (name, [(step, exact match of each member)], [{suite: {"teacher_forced", "free_running"} or None}]).
    """
    suites = list(rows[0][2][0])
    names = ["\n".join(textwrap.fill(flag, 34) for flag in name.split(", ")) for name, *_ in rows]
    height = max(0.62, 0.17 * (1 + max(name.count("\n") for name in names)))  # inches of a row
    figure = figures.blank(4.5 + 1.7 * len(suites), 1.5 + height * len(rows))
    curves, *panels = figure.subplots(1, 1 + len(suites), sharey=True, width_ratios=[1.8] + [1] * len(suites))
    for y, (_, exact, members) in enumerate(rows):
        curves.hlines((y - 0.4, y + 0.4), 0, exact[-1][0], color="#DDDDDD", linewidth=0.8)  # at 100 % and at 0 %
        heights = [(step, y + 0.4 - 0.8 * np.asarray(exact_M)) for step, exact_M in exact]
        figures.band(curves, heights, color=figures.BLUE, marker="o", markersize=2)
        for panel, suite in zip(panels, suites, strict=True):
            _dots(panel, y, [member[suite] for member in members])
    for panel, title in zip((curves, *panels), ("terms right in training, 0 to 100 %", *suites), strict=True):
        panel.set_title(title, loc="left", fontsize=9.5)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.set_axisbelow(True)
    for panel in panels:
        panel.set(xlim=(-8, 108), xticks=(0, 50, 100), xlabel="%")
        panel.grid(color="#DDDDDD", linewidth=0.8)
    curves.set(xlabel="step", xlim=(0, None), ylim=(len(rows) - 0.5, -0.5))
    curves.set_yticks(range(len(rows)), names, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries, frameon=False, loc="outside upper right", ncols=len(entries), fontsize=9)
    return figure


def _dots(axes: "Axes", y: int, results: list[Any]) -> None:
    """Draw every member as a dot: teacher-forced above, free-running below with its median."""
    if None in results:
        axes.text(50, y, "none", ha="center", va="center", color=figures.GREY, fontsize=8)
        return
    spread = np.linspace(-0.09, 0.09, len(results)) if len(results) > 1 else np.zeros(1)
    x = []
    for (mode, (label, colour)), offset in zip(MODES.items(), (-0.2, 0.2), strict=True):
        x = [100 * each[mode] for each in results]
        axes.scatter(x, y + offset + spread, s=16, color=colour, alpha=0.7, linewidth=0, label=label, zorder=3)
    axes.vlines(np.median(x), y + 0.05, y + 0.35, color=figures.ORANGE, linewidth=1.8, label="its median", zorder=2)
