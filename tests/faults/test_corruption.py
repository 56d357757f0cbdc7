"""A small form of the trial: no damaged checkpoint is loaded as if it were sound."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
corruption = importlib.import_module("faults.corruption")


def test_every_kind_of_damage_is_found_and_the_newest_sound_checkpoint_loaded(tmp_path):
    found = corruption.measure(108, tmp_path)
    assert found["silent"] == 0 and found["back"] == found["refused"] == 1
    assert found["newest"] > 50 and found["older"] > 20
    assert found["newest"] + found["older"] + found["harmless"] == found["cases"] == 108
