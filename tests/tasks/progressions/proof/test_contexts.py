"""The strings that both judges ask are those of every progression, and no other."""

import numpy as np
import pytest

from apformer import model
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.proof import contexts
from apformer.tasks.progressions.recipes import exact

IN_BASE_12 = str.maketrans(" ^", "ab")  # ten digits, the space, and START


def every_string(data, reach, terms):
    """(What every character after the second term depends on, and it, as a number; how many contexts there are).

    Every progression of up to so many terms is written out.
    """
    found = set()
    kinds = set()
    top = 10**data.digits - 1
    start, wide = "^" * (reach + 1), data.digits + 1
    for difference in range(data.min_difference, data.max_difference + 1):
        for first in range(top + 1):
            row = [first]
            while len(row) < terms and 0 <= row[-1] + difference <= top:
                row.append(row[-1] + difference)
            text = start + " ".join(f"{term:0{data.digits}d}" for term in row)
            for at in range(len(start) + 2 * wide - 1, len(text)):
                found.add(int(text[at - 1 - reach : at + 1].translate(IN_BASE_12), 12))
            ends = {k: len(start) + k * wide - 1 for k in range(2, len(row))}
            kinds |= {(row[k - 1], difference, text[end - 1 - reach : end]) for k, end in ends.items()}
    return found, len(kinds)


# Digits, differences, layers, window: as many terms as are read and one more are enough, and two more change nothing.
DOMAINS = [(1, -4, 4, 1, 4), (1, 1, 4, 2, 4), (2, -30, 30, 2, 5), (2, 9, 20, 1, 13), (2, 1, 99, 2, 5)]


@pytest.mark.parametrize(
    ("digits", "low", "high", "layers", "window"),
    [*DOMAINS, pytest.param(3, 1, 500, 2, 6, marks=pytest.mark.long)],
)
def test_the_strings_and_their_number_are_those_of_every_progression(digits, low, high, layers, window):
    config = Config(digits=digits, min_difference=low, max_difference=high)
    data, cfg = vars(config), {"n_layers": layers, "window": window, "position": "relative"}
    ours, counted = [np.empty(0, np.int64)], 0
    for columns in contexts.slices(data, cfg):
        codes, truth = contexts.strings(columns, data, cfg)
        ours.append((codes * 12 + truth)[truth < contexts.START])
        counted += int((columns[2] - 2).sum())
    expected, kinds = every_string(config, contexts.reach(cfg), contexts.most_terms(data, cfg) + 1)
    assert np.array_equal(np.unique(np.concatenate(ours)), np.sort([*expected]))
    assert counted == contexts.count(data, cfg) == kinds


def test_the_number_of_contexts_of_the_recipes():
    recipes = [exact(digits) for digits in (3, 4, 5)]
    counts = [contexts.count(vars(recipe.data), vars(recipe.model)) for recipe in recipes]
    assert counts == [415_667, 9_373_750, 99_373_750]


def test_a_model_without_reach_is_asked_whole_progressions():
    data, cfg = vars(Config(digits=2, max_difference=49, max_terms=7)), vars(model.Config())
    rows = np.concatenate([*contexts.slices(data, cfg)], axis=1)
    expected = {
        (first, difference, terms)
        for first in range(100)
        for difference in range(1, 50)
        if (terms := min(7, 1 + (99 - first) // difference)) > 2
    }
    assert {*map(tuple, rows.T.tolist())} == expected and rows.shape[1] == len(expected)
    assert contexts.count(data, cfg) == (rows[2] - 2).sum()
    assert contexts.claim(data, cfg).endswith("of up to 7 terms, once its first two terms are given")


@pytest.mark.parametrize("position", ["relative", "alibi", "none", "rotary", "sinusoidal", "fire", "learned"])
@pytest.mark.parametrize("window", [None, 5])
def test_the_reach_is_that_of_the_model(position, window):
    cfg = model.Config(position=position, window=window, n_layers=3, max_len=99 if position == "learned" else None)
    assert contexts.reach(vars(cfg)) == model.reach(cfg)
