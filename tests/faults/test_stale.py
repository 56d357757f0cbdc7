"""A few directories that are older than their files; `python experiments/reliability.py stale` tries many."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
stale, runs = (importlib.import_module(f"faults.{name}") for name in ("stale", "_runs"))


def test_a_directory_that_is_older_than_its_files_makes_no_run_silently_wrong(tmp_path):
    _, reason = runs.shim(tmp_path)
    if reason is not None:
        pytest.skip(reason)
    found = stale.measure(3, tmp_path)
    assert found["cases"] == found["equal"] + found["refused"] == 3


def test_what_a_directory_has_gained_and_lost_is_forgotten(tmp_path):
    for name, files in (("earlier", ("both", "removed")), ("later", ("both", "new"))):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text(name)
    assert stale._changed(tmp_path / "earlier", tmp_path / "later") == [""]
    stale._forget(tmp_path / "earlier", tmp_path / "later")
    texts = {path.name: path.read_text() for path in (tmp_path / "later").iterdir()}
    assert texts == {"both": "later", "removed": "earlier"}
