"""Figures: loss against the Bayes floor; accuracy by position, difference and carries; words in a plane.

Every function takes plain records and returns a matplotlib Figure to be saved; none opens a window. Matplotlib is
imported when the first figure is made. Colours are from Okabe and Ito's palette, which the colour-blind tell apart.
"""

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from apformer import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _SKY, _GREY = "#0072B2", "#D55E00", "#56B4E9", "#555555"
_MODES = {"teacher_forced": ("teacher-forced", _SKY, 4), "free_running": ("free-running", _BLUE, 1.5)}


def loss_curve(records, bayes_floor=None):
    """Loss and exact match over the steps of a run; bayes_floor is the Bayes predictor's loss on its validation rows.

    records: dicts with step, loss, exact and, where they were measured, validation_loss and validation_exact. A list
    in place of a number holds one value for each member: the median is drawn, in a band from least to greatest.
    """
    names = [name for name in ("loss", "exact") if any(name in record for record in records)] or ["loss"]
    figure, panels = _figure("Training", rows=len(names), height=1.4 + 2.4 * len(names))
    upper, lower = panels[0], panels[-1]
    for axes, name in zip(panels, names, strict=True):
        _curve(axes, records, name, "training", _BLUE)
        _curve(axes, records, f"validation_{name}", "validation", _ORANGE, marker="o", markersize=3.5)
    if bayes_floor is not None:
        upper.axhline(bayes_floor, color=_GREY, linestyle="--", label=f"Bayes predictor, validation {bayes_floor:.4f}")
    upper.set(ylabel="loss (nats per character)" if "exact" in names else "loss (nats per token)")
    _log_axis(upper)
    if "exact" in names:
        _percent_axis(lower)
    members = max((np.size(record.get("loss")) for record in records), default=1)
    lower.set(xlabel="step" if members == 1 else f"step (line: median of {members} members, band: least to greatest)")
    _legend(upper)
    return figure


def accuracy_by_position(evaluation):
    """Share of terms exactly right by their number in the sequence, from the dict that `evaluate` returns."""
    groups = [group for group in evaluation["by_position"] if group["count"]]
    figure, (axes,) = _figure("Accuracy by position")
    for mode, (label, colour, width) in _MODES.items():
        x, y = [group["term"] for group in groups], [100 * group[mode] for group in groups]
        axes.plot(x, y, color=colour, linewidth=width, marker="o", markersize=width + 1.5, label=label)
    _percent_axis(axes)
    axes.set(xlabel="term of the sequence (the first two are given)")
    _legend(axes)
    return figure


def accuracy_by(evaluation, by):
    """Share of terms exactly right by "difference" or by "carries", from the dict that `evaluate` returns."""
    groups = [group for group in evaluation[f"by_{by}"] if group["count"]]
    figure, (axes,) = _figure(f"Accuracy by {by}")
    x = np.arange(len(groups))
    for offset, (mode, (label, colour, _)) in zip((-0.2, 0.2), _MODES.items(), strict=True):
        axes.bar(x + offset, [100 * group[mode] for group in groups], 0.38, color=colour, label=label)
    _percent_axis(axes)
    names = [str(g["carries"]) if by == "carries" else f"{g['from']}\nto {g['to']}" for g in groups]
    axes.set_xticks(x, [f"{name}\n({g['count']:,})" for name, g in zip(names, groups, strict=True)], fontsize=8)
    what = {"difference": "difference between neighbours", "carries": "carries or borrows since the term before"}[by]
    axes.set(xlabel=f"{what} (number of terms)")
    _legend(axes)
    return figure


def accuracy_by_width(evaluation):
    """Share of terms exactly right, free-running, by their digits, from the evaluation of digits."""
    figure, (axes,) = _figure("Accuracy by width")
    kinds = dict.fromkeys(suite["rows"] for suite in evaluation["widths"])
    # Where lines are equal, a thin one shows on a wide one.
    for kind, colour, width in zip(kinds, (_SKY, _BLUE, _ORANGE), (6, 3, 1), strict=False):
        suites = [suite for suite in evaluation["widths"] if suite["rows"] == kind]
        shares = [100 * suite["free_running"] for suite in suites]
        digits = [suite["digits"] for suite in suites]
        axes.plot(digits, shares, color=colour, linewidth=width, marker="o", markersize=width + 1.5, label=kind)
    axes.axvline(evaluation["trained_digits"], color=_GREY, linestyle="--", label="trained up to here")
    _percent_axis(axes)
    axes.set(xlabel="digits of a term", xlim=(0, None))
    _legend(axes)
    return figure


def loss_by_position(evaluation):
    """What a token costs by how many stand before it in its row, from the evaluation of a text."""
    nats = evaluation["nats_by_position"]
    figure, (axes,) = _figure("Loss by position")
    axes.plot(np.arange(1, len(nats) + 1), nats, color=_BLUE, linewidth=1.3, label="validation")
    axes.axhline(evaluation["nats_per_token"], color=_GREY, linestyle="--", label="mean")
    axes.set(xlabel="tokens that the model sees", ylabel="loss (nats per token)")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    _legend(axes)
    return figure


def fine_tuning(curves):
    """Validation loss over the steps of several ways to train; curves: {name: [(step, nats per token), ...]}."""
    figure, (axes,) = _figure("Fine-tuning: loss on held-out text")
    for (name, points), colour in zip(curves.items(), (_BLUE, _SKY, _ORANGE), strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, marker="o", markersize=3.5, label=name)
    axes.set(xlabel="step", ylabel="loss (nats per token)")
    _legend(axes)
    return figure


def save(folder, pictures):
    """Write {name: figure} as PNG files into a folder. Raises UserError (exit DISK)."""
    with files.disk_errors(folder):
        folder.mkdir(exist_ok=True)
        for name, figure in pictures.items():
            figure.savefig(folder / f"{name}.png")


def sweep(rows):
    """Combinations under each other: how each was learned, and every member as a dot on every suite.

    The curve is the median of the members' exact match in training, in a band from least to greatest.
    rows: (name, [(step, exact match of each member)], [{suite: {"teacher_forced", "free_running"} or None}]).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    suites = list(rows[0][2][0])
    figure = Figure(figsize=(4.5 + 1.7 * len(suites), 1.5 + 0.62 * len(rows)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    widths = [1.8] + [1] * len(suites)
    curves, *panels = figure.subplots(1, 1 + len(suites), sharey=True, width_ratios=widths)
    for y, (_, exact, members) in enumerate(rows):
        _learning(curves, y, exact)
        for panel, suite in zip(panels, suites, strict=True):
            _dots(panel, y, [member[suite] for member in members])
    for panel, title in zip((curves, *panels), ("terms right in training, 0 to 100 %", *suites), strict=True):
        panel.set_title(title, loc="left", fontsize=9.5)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        for edge in range(1, len(rows)):
            panel.axhline(edge - 0.5, color="#BBBBBB", linewidth=0.6)
    for panel in panels:
        panel.set(xlim=(-8, 108), xticks=(0, 50, 100), xlabel="%")
        panel.grid(axis="x", color="#DDDDDD", linewidth=0.8)
        panel.set_axisbelow(True)
    curves.set(xlabel="step", xlim=(0, None), ylim=(len(rows) - 0.5, -0.5))
    curves.set_yticks(range(len(rows)), [_wrapped(name) for name, *_ in rows], fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    seen = dict(zip(labels, handles, strict=True))
    figure.legend(seen.values(), seen, frameon=False, loc="outside upper right", ncols=len(seen), fontsize=9)
    return figure


def losses(curves: list[tuple[str, list[tuple[int, np.ndarray]]]]) -> "Figure":
    """Draw the validation loss of each combination over the steps: the median of its members, in a band of them all.

    Args:
        curves: Pairs of a name and [(step, loss of each member)].
    """
    figure, (axes,) = _figure("Validation loss")
    axes.set_prop_cycle(color=(_BLUE, _ORANGE, _SKY, _GREY))
    for name, curve in curves:
        steps, loss_SM = [step for step, _ in curve], np.array([loss_M for _, loss_M in curve])
        (line,) = axes.plot(steps, np.median(loss_SM, axis=1), marker="o", markersize=3, linewidth=1.3, label=name)
        axes.fill_between(steps, loss_SM.min(1), loss_SM.max(1), color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="step", ylabel="loss (nats)")
    _log_axis(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def words(names, place_V2, shares, marked=0):
    """Words in a plane, the first `marked` of them in a colour of their own; shares: of the variance on either axis."""
    figure, (axes,) = _figure("Vectors of words: the first two principal components", height=7.5)
    axes.grid(False)
    for k, (name, (x, y)) in enumerate(zip(names, place_V2, strict=True)):
        dot, text = (_ORANGE, _ORANGE) if k < marked else (_BLUE, _GREY)
        axes.plot(x, y, "o", color=dot, markersize=3)
        axes.annotate(name, (x, y), (3, 3), textcoords="offset points", color=text, fontsize=8)
    axes.set_aspect("equal", "datalim")
    axes.set(xlabel=f"first, {shares[0]:.0%} of the variance", ylabel=f"second, {shares[1]:.0%} of the variance")
    return figure


def _learning(axes, y, exact):
    """Exact match over the steps as a curve from y + 0.4 (none) up to y - 0.4 (all)."""
    steps = [step for step, _ in exact]
    height_SM = y + 0.4 - 0.8 * np.array([exact_M for _, exact_M in exact], float)
    axes.hlines((y - 0.4, y + 0.4), 0, max(steps), color="#DDDDDD", linewidth=0.8)
    if height_SM.shape[1] > 1:
        axes.fill_between(steps, height_SM.min(1), height_SM.max(1), color=_BLUE, alpha=0.25, linewidth=0)
    axes.plot(steps, np.median(height_SM, axis=1), color=_BLUE, linewidth=1.3, marker="o", markersize=2)


def _dots(axes, y, measured):
    """Every member as a dot: teacher-forced above, free-running below with its median."""
    if None in measured:
        axes.text(50, y, "none", ha="center", va="center", color=_GREY, fontsize=8)
        return
    spread = np.linspace(-0.09, 0.09, len(measured)) if len(measured) > 1 else np.zeros(1)
    for (mode, (label, colour, _)), offset in zip(_MODES.items(), (-0.2, 0.2), strict=True):
        x = [100 * each[mode] for each in measured]
        axes.scatter(x, y + offset + spread, s=16, color=colour, alpha=0.7, linewidth=0, label=label, zorder=3)
    axes.vlines(np.median(x), y + 0.05, y + 0.35, color=_ORANGE, linewidth=1.8, label="its median", zorder=2)


def _wrapped(name):
    """Each flag of a combination on lines of its own."""
    return "\n".join(textwrap.fill(part, 34) for part in name.split(", "))


def _figure(title, rows=1, height=3.8):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    axes[0].set_title(title, loc="left")
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        panel.set_axisbelow(True)
    return figure, axes


def _curve(axes, records, name, label, colour, **style):
    # None, in place of a number or of one member's, stands for what was not finite.
    measured = [(record["step"], np.atleast_1d(np.asarray(record.get(name), float))) for record in records]
    kept = [(step, values[np.isfinite(values)]) for step, values in measured if np.isfinite(values).any()]
    if not kept:
        return
    steps, scale = [step for step, _ in kept], 100 if name.endswith("exact") else 1
    if max(len(values) for _, values in kept) > 1:
        low, high = ([scale * end(values) for _, values in kept] for end in (np.min, np.max))
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    middle = [scale * np.median(values) for _, values in kept]
    axes.plot(steps, middle, color=colour, linewidth=1.3, label=label, **style)


def _percent_axis(axes):
    axes.set(ylim=(-3, 103), yticks=range(0, 101, 20), ylabel="terms exactly right (%)")


def _log_axis(axes):
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    subs = (1, 1.5, 2, 3, 5, 7) if decades < 2 else (1, 3) if decades < 5 else (1,)  # so that no number hides another
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def _legend(axes):
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles, labels, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
