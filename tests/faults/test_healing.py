"""A small form of the trial: whatever is damaged in a run, `resume` brings its bits back."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
healing = importlib.import_module("faults.healing")


def test_a_damaged_run_that_is_resumed_ends_as_if_nothing_had_happened(tmp_path):
    found = healing.measure(6, tmp_path)
    assert found["healed"] == found["cases"] == 6 and found["again"] >= 6
