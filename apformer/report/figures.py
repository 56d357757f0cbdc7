"""Draw the figures of a run (loss, accuracy, word vectors in a plane) and of a sweep.

Every function takes plain records and returns a matplotlib Figure; none opens a window. Matplotlib is imported with the
first figure. The colours are of Okabe and Ito's palette, which colour-blind readers can distinguish. Texts are shown
letter by letter: they are never parsed as mathematics, and a letter that no installed font has is shown as its code
point.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apformer import files
from apformer.report import progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, SKY, GREY = "#0072B2", "#D55E00", "#56B4E9", "#555555"
FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "Hiragino Sans", "Microsoft YaHei")
FONTS += ("Arial Unicode MS", "Unifont")  # fonts for many scripts, used where they are installed
MOST = 24  # letters of a text in a figure
STYLES = ((ORANGE, 6.0), (SKY, 4.0), (BLUE, 1.5))  # (colour, width) of up to three series; a single one has the last
CURVES = [
    ("", "training", {"color": BLUE}),
    ("validation_", "validation", {"color": ORANGE, "marker": "o", "markersize": 3.5}),
]


def blank(width: float, height: float) -> "Figure":
    """Return an empty figure; width and height in inches."""
    # matplotlib cannot be imported where MPLBACKEND names a backend that is not installed, such as that of a notebook.
    backend = os.environ.pop("MPLBACKEND", None)
    import matplotlib
    from matplotlib.figure import Figure

    if backend is not None:
        os.environ["MPLBACKEND"] = backend
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def save(folder: Path, pictures: dict[str, "Figure"]) -> None:
    """Write {name: figure} as PNG files into a folder. Skip a figure that cannot be drawn, with a message.

    Raises:
        UserError: Exit code DISK, if a file cannot be written.
    """
    with files.disk_errors(folder):
        folder.mkdir(exist_ok=True)
        for name, figure in pictures.items():
            try:
                from matplotlib.text import Text

                for text in figure.findobj(Text):
                    # Labels of a logarithmic axis are mathematics, and not there before the figure is drawn.
                    text.set(parse_math="$" not in text.get_text(), fontfamily=[*_fonts()])
                figure.savefig(folder / f"{name}.png")
            except OSError:
                raise
            except Exception as error:
                progress.write(f"no figure {name}: {next(iter(str(error).splitlines()), type(error).__name__)}")


@cache
def _fonts() -> dict[str, set[int]]:
    """Return {font family: its code points}, of matplotlib's own font and of those of FONTS that are installed."""
    from matplotlib import font_manager

    fonts = {"DejaVu Sans": {*font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap()}}
    for font in font_manager.fontManager.ttflist:
        if font.name in FONTS:
            fonts.setdefault(font.name, {*font_manager.get_font(font.fname).get_charmap()})
    return fonts


def legible(text: str) -> str:
    """Return the first MOST letters of a text on one line, with signs for white space.

    Letters that do not print, or that no font has, are shown as code points.
    """
    drawable = set.union(*_fonts().values())
    signs = {" ": "␣", "\n": "⏎", "\t": "⇥"}
    letters = [signs.get(c, c if ord(c) in drawable and c.isprintable() else f"U+{ord(c):04X}") for c in text[:MOST]]
    return "".join(letters) + "…" * (len(text) > MOST)


def loss_curve(records: list[dict], bayes_floor: float | None = None) -> "Figure":
    """Draw loss and exact match over the steps of a run.

    Args:
        records: Dicts with step, loss, exact and, where they were measured, validation_loss and validation_exact. A
            list in place of a number has a value for each member: their median is drawn, in a band from least to
            greatest.
        bayes_floor: Loss of the Bayes predictor on the validation rows of the run.
    """
    names = ["loss"] + ["exact"] * any("exact" in record for record in records)
    figure, column = panels("Training", rows=len(names), height=1.4 + 2.4 * len(names))
    for axes, name in zip(column, names, strict=True):
        scale = 100 if name == "exact" else 1
        for prefix, label, style in CURVES:
            points = [(record["step"], scale * np.asarray(record.get(prefix + name), float)) for record in records]
            band(axes, points, label=label, **style)
    upper, lower = column[0], column[-1]
    if bayes_floor is not None:
        label = f"Bayes predictor, validation {bayes_floor:.4f}"
        upper.axhline(bayes_floor, color=GREY, linestyle="--", label=label)
    unit = "character" if "exact" in names else "token"
    upper.set(ylabel=f"loss (nats per {unit}, log scale)")
    _log_axis(upper)
    if "exact" in names:
        _percent_axis(lower)
    members = max((np.size(record.get("loss", 0)) for record in records), default=1)
    lower.set(xlabel="step" if members == 1 else f"step (line: median of {members} members, band: least to greatest)")
    legend(upper)
    return figure


def chart(block: dict) -> "Figure":
    """Draw lines or bars of up to three series, as `report.sections` describes them."""
    figure, (axes,) = panels(block["title"])
    styles = STYLES[-len(block["series"]) :]
    if block["kind"] == "lines":
        scale = 100 if block["share"] else 1
        for (name, values), (color, width) in zip(block["series"].items(), styles, strict=True):
            axes.plot(block["at"], scale * np.asarray(values), color=color, linewidth=width, label=name)
        if block["mean"] is not None:
            axes.axhline(block["mean"], color=GREY, linestyle="--", label="mean")
        axes.set(xlabel=block["x"], ylabel=block["y"])
    else:
        groups, width = block["groups"], 0.8 / len(styles)
        place_J = np.arange(len(groups))
        for k, (name, (color, _)) in enumerate(zip(block["series"], styles, strict=True)):
            shares = np.array([group["values"][k] for group in groups], float)
            axes.bar(place_J + k * width, 100 * shares, width, color=color, label=name)
        middles = place_J + (len(styles) - 1) / 2 * width
        size = 600 / max(75, sum(len(group["name"]) for group in groups))  # 8, or less where names would overlap
        axes.set_xticks(middles, [f"{group['name']}\n({group['note']})" for group in groups], fontsize=size)
        axes.set(xlabel=block["unit"])
    if block.get("share", True):  # bars are always shares
        _percent_axis(axes)
    legend(axes)
    return figure


def losses(curves: list[tuple[str, list[tuple]]]) -> "Figure":
    """Draw the validation loss of each combination over the steps: the median of its members, in a band of them all.

    Args:
        curves: Pairs of a name and [(step, loss of each member)].
    """
    figure, (axes,) = panels("Validation loss: median of the members, least to greatest")
    for (name, points), (marker, colour) in zip(curves, cycle(product("os^v", (BLUE, ORANGE, SKY, GREY)))):
        band(axes, points, colour, label=name, marker=marker, markersize=4)
    axes.set(xlabel="step", ylabel="loss (nats, log scale)")
    _log_axis(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def words(names: list[str], place_V2: np.ndarray, shares: Sequence[float] | np.ndarray, marked: int = 0) -> "Figure":
    """Draw words in a plane, the first `marked` of them in another colour; shares: of the variance, on both axes."""
    figure, (axes,) = panels("Vectors of words: the first two principal components", height=7.5)
    axes.grid(False)
    for k, (name, (x, y)) in enumerate(zip(names, place_V2, strict=True)):
        dot, text = (ORANGE, ORANGE) if k < marked else (BLUE, GREY)
        axes.plot(x, y, "o", color=dot, markersize=3)
        axes.annotate(legible(name), (x, y), (3, 3), textcoords="offset points", color=text, fontsize=8)
    axes.set_aspect("equal", "datalim")
    axes.set(xlabel=f"first, {shares[0]:.0%} of the variance", ylabel=f"second, {shares[1]:.0%} of the variance")
    return figure


def panels(title: str, rows: int = 1, height: float = 3.8) -> tuple["Figure", np.ndarray]:
    """Return (figure, array of its axes), with a title and the axes below each other; height in inches."""
    figure = blank(7.5, height)
    column = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    column[0].set_title(title, loc="left")
    for axes in column:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, column


def band(axes: "Axes", points: list[tuple[int, np.ndarray]], color: str, **style: Any) -> None:
    """Draw the median of the finite values of each step as a line, in a band from the least to the greatest."""
    finite = [(step, values[np.isfinite(values)]) for step, values in points if np.isfinite(values).any()]
    steps = [step for step, _ in finite]
    low, middle, high = ([value(values) for _, values in finite] for value in (np.min, np.median, np.max))
    if low != high:
        edge = 3 if len(steps) == 1 else 0  # a band of one step has no width
        axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=edge)
    if finite:
        axes.plot(steps, middle, color=color, linewidth=1.3, **style)


def _percent_axis(axes: "Axes") -> None:
    axes.set(ylim=(-3, 103), yticks=range(0, 101, 20), ylabel="exactly right (%)")


def _log_axis(axes: "Axes") -> None:
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = np.log10(high) - np.log10(low)  # a quotient can overflow
    subs = (1, 1.5, 2, 3, 5, 7) if decades < 2 else (1, 3) if decades < 5 else (1,)  # labels must not overlap
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()


def legend(axes: "Axes") -> None:
    """Draw the legend in a row above the upper right corner."""
    handles = axes.get_legend_handles_labels()
    axes.legend(*handles, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
