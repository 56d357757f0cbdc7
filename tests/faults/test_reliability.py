"""Each trial of experiments/faults/ says what it promises, and its figures are those that its claim names."""

import importlib
import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
reliability = importlib.import_module("reliability")


@pytest.mark.parametrize("name", reliability.NAMES)
def test_a_trial_says_what_it_promises(name):
    trial = importlib.import_module(f"faults.{name}")
    assert trial.QUESTION.endswith("?") and trial.CASES > 0 and re.search(r"\{cases:", trial.CLAIM)
    assert trial.__doc__ and callable(trial.measure)


def test_what_was_found_before_a_stop_is_not_sought_again(tmp_path):
    runs = importlib.import_module("faults._runs")
    assert runs.over([("kill", 1), ("kill", 2)], lambda server, item: item[1], tmp_path, desc="some") == [1, 2]
    with open(tmp_path / runs.FOUND, "a") as kept:
        kept.write('[["kill", 3], ')  # a line that a stop has cut
    for new in (4, 5):
        assert runs.over([("kill", 2), ("kill", new)], lambda server, item: item[1], tmp_path, desc="some") == [2, new]
