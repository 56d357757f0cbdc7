"""experiments/bench/device.py measures every part at a small size."""

import json
from pathlib import Path

import pytest

from tests.helpers.own_process import python

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "experiments/bench/device.py"


def test_every_part_measures(tmp_path):
    parts = ("machine", "training", "generation")
    python(SCRIPT, "--tiny", "--out", tmp_path / "device.json", "--parts", *parts)
    record = json.loads((tmp_path / "device.json").read_text())
    for name in parts:
        assert "fault" not in record["parts"][name], (name, record["parts"][name])
    assert record["parts"]["machine"]["measured"][0]["platform"] == "cpu"
    assert record["parts"]["training"]["measured"][0]["tokens_per_s"] > 0
    assert [found["batch_size"] for found in record["parts"]["generation"]["measured"]] == [1, 2]
