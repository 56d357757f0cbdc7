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
