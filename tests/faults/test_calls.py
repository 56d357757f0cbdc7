"""A few cuts at system calls, of which `python experiments/reliability.py calls` makes all."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
calls, runs = (importlib.import_module(f"faults.{name}") for name in ("calls", "_runs"))


def test_a_run_cut_at_a_system_call_or_on_a_disk_that_lies_is_never_silently_wrong(tmp_path):
    _, reason = runs.shim(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    found = calls.measure(12, tmp_path)
    assert found["cases"] >= 6 and found["calls"] > 300
    assert {name: found[name] for name in ("lost", "unequal", "unsaid", "silent")} == dict.fromkeys(
        ("lost", "unequal", "unsaid", "silent"), 0
    )
