"""What the figures show is what the records say, and they can be drawn from whatever a run leaves."""

from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest

from apformer.report import sections
from apformer.report.figures import MOST, chart, legible, loss_curve, save, words
from tests.helpers.own_process import python

RECORDS = [
    {"step": 10, "loss": 2.0, "exact": 0.0},
    {"step": 20, "loss": 1.0, "exact": 0.25, "validation_loss": 1.1, "validation_exact": 0.2},
    {"step": 30, "loss": 0.5, "exact": 1.0, "validation_loss": 0.6, "validation_exact": 0.9},
]
MEMBERS = [
    {"step": 1, "loss": [0.9, 1.8, 3.6], "exact": [0.0, 0.5, 1.0], "validation_loss": [None] * 3},
    {"step": 2, "loss": [0.5, None, 1.0], "exact": [0.0, 0.5, 1.0]},
    {"step": 3, "loss": [None, None, 1.0]},
]


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_loss_curve_draws_the_records_beside_the_floor():
    upper, lower = loss_curve(RECORDS, bayes_floor=0.4743).axes
    drawn = lines(upper)
    assert drawn["training"] == [[10, 2.0], [20, 1.0], [30, 0.5]]
    assert drawn["validation"] == [[20, 1.1], [30, 0.6]]
    assert [y for _, y in drawn["Bayes predictor, validation 0.4743"]] == [0.4743] * 2
    assert lines(lower) == {"training": [[10, 0], [20, 25], [30, 100]], "validation": [[20, 20], [30, 90]]}
    assert upper.get_ylabel() == "loss (nats per character, log scale)"
    assert lower.get_ylabel() == "exactly right (%)"
    assert [text.get_text() for text in upper.get_legend().get_texts()] == list(drawn)


@pytest.mark.parametrize("end", [0.9, 1e-3, 0.0])
def test_the_numbers_beside_a_loss_stand_apart_however_far_it_falls(end):
    figure = loss_curve([{"step": step, "loss": 2.0 if step < 5 else end, "exact": 0.5} for step in range(9)])
    figure.draw_without_rendering()
    bottom, top = sorted(figure.axes[0].get_ylim())
    shown = [label for label in figure.axes[0].get_yticklabels() if bottom <= label.get_position()[1] <= top]
    boxes = sorted((label.get_window_extent().y0, label.get_window_extent().y1) for label in shown)
    assert len(boxes) > 1 and all(upper[0] >= lower[1] for lower, upper in pairwise(boxes))


def test_finite_members_are_drawn_as_their_median_in_a_band():
    upper, lower = loss_curve(MEMBERS).axes
    assert lines(upper) == {"training": [[1, 1.8], [2, 0.75], [3, 1.0]]}
    assert lines(lower) == {"training": [[1, 50], [2, 50]]}
    (band,) = upper.collections
    x, y = band.get_paths()[0].vertices.T
    assert (y[x == 1].min(), y[x == 1].max()) == (0.9, 3.6)
    assert "3 members" in lower.get_xlabel()


@pytest.mark.parametrize("figure", [lambda: loss_curve([]), lambda: chart(sections.bars("", "", ["a"], []))])
def test_figures_of_nothing_can_be_saved(figure, tmp_path):
    save(tmp_path, {"figure": figure()})
    pixels = matplotlib.image.imread(tmp_path / "figure.png")
    assert pixels.shape[1] == 900 and np.ptp(pixels) > 0.9


def test_importing_figures_does_not_import_matplotlib():
    python("-c", "import sys, apformer.report.figures; sys.exit('matplotlib' in sys.modules)")


def test_a_text_of_a_user_is_shown_letter_by_letter():
    """No mathematics, no escape of a terminal, and a code point for a letter that no font has."""
    assert legible(" a\n$x$") == "␣a⏎$x$" and legible("\x1b[31m") == "U+001B[31m"
    assert legible("\U000f0000") == "U+F0000" and legible("w" * 99) == "w" * MOST + "…"


def test_a_figure_that_cannot_be_drawn_is_left_out_and_costs_no_other(tmp_path, capsys):
    """The text of the first would end matplotlib, were it read as mathematics."""
    odd, broken = words(["$$ \\frac{", "猫"], np.eye(2), [0.5, 0.5]), loss_curve(RECORDS)
    broken.savefig = None
    save(tmp_path, {"broken": broken, "odd": odd})
    assert odd.axes[0].get_xticklabels()[0].get_parse_math()  # of its axis
    assert (tmp_path / "odd.png").stat().st_size > 5000 and not (tmp_path / "broken.png").exists()
    assert capsys.readouterr().err.startswith("no figure broken: ")
