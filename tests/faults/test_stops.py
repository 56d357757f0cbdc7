"""A few stops at random moments, of which `python experiments/reliability.py stops` makes 350."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
stops = importlib.import_module("faults.stops")


def test_a_command_that_is_stopped_says_so_and_keeps_its_work(tmp_path, monkeypatch):
    monkeypatch.setattr(stops, "KINDS", ("train",))
    found = stops.measure(10, tmp_path)
    assert found["cases"] == 10 and found["pipes"] == 4 and found["terminal"] == 1
    assert (found["unsaid"], found["lost"], found["unequal"]) == (0, 0, 0)
