"""A small form of the trial: the same damage, silent in other libraries, is not in this one."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.faults,
    # Reads that orbax began beside one that failed end when nobody waits for them any more, each with a traceback.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
plain = importlib.import_module("faults.plain")


def test_the_same_damage_to_the_same_arrays_as_other_libraries_keep_them(tmp_path):
    found = plain.measure(5 * 36, tmp_path)
    head, *rows = found.pop("table")
    table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert found["apformer"] == 0 and found["apformer cases"] == 36 and table.keys() == {*plain.LIBRARIES}
    assert int(table["apformer"]["one before"]) + int(table["apformer"]["harmless"]) == 36
    assert found["orbax"] > 0  # orbax is always installed: so the trial does find wrong numbers
    assert found["cases"] == sum(found[f"{name.split()[0]} cases"] for name in plain.LIBRARIES)
