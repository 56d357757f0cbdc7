"""Faults planted in a proof are found, and the trial of them would see one that is missed."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
planted = importlib.import_module("faults.planted")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return planted.trained(tmp_path_factory.mktemp("planted"))


def test_planted_faults_are_found(trained):
    figures = planted.tried(40, *trained)
    assert figures["missed"] == 0 and figures["weights"] == figures["bits"] == 20
    assert figures["refused"] + figures["harmless"] == 20 and figures["refused"] >= 15


def test_a_check_that_believes_everything_would_be_seen(trained, monkeypatch):
    monkeypatch.setattr(planted.check, "main", lambda *_, **__: 0)
    figures = planted.tried(20, *trained)
    assert figures["missed"] >= 18
