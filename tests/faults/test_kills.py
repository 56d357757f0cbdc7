"""A few kills of a run at random moments, of which `python experiments/reliability.py kills` makes a thousand."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
kills = importlib.import_module("faults.kills")


def test_a_run_killed_again_and_again_ends_as_the_undisturbed_one(tmp_path):
    found = kills.measure(10, tmp_path)
    assert found["cases"] == 10 and found["most"] >= 1
    assert (found["lost"], found["unequal"]) == (0, 0)
