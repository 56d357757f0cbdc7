"""Byte pairs compared with `regex`, `tokenizers` and `tiktoken`: few strings, and what is said of a difference."""

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("regex")
pytest.importorskip("tokenizers")
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
comparison = importlib.import_module("byte_pairs")
sys.path.pop(0)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(comparison, "LEARNED_FROM", 60)
    monkeypatch.setattr(comparison, "MERGES", 100)


def test_nothing_differs(tmp_path, capsys):
    comparison.run(comparison.Compare(strings=3000, seed=1, run_dir=str(tmp_path / "run")))
    figures = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert figures["strings"] == 3000 and figures["comparisons"] == 9 and figures["differences"] == 0
    assert capsys.readouterr().out.count("0 of 3,000 differ") >= 9
