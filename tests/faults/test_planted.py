"""Faults planted in a proof are found, and the trial of them would see one that is missed."""

from importlib import import_module

import pytest

from apformer import cli, runs
from apformer.tasks.progressions.generator import Config
from tests.helpers.small_models import circuit_run

pytestmark = pytest.mark.faults
planted = import_module("faults.planted")


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """A certified circuit of two digits, and the folder of its proof."""
    path = circuit_run(tmp_path_factory.mktemp("planted") / "run", Config(digits=2, max_difference=40))
    assert cli.main(["certify", str(path)]) == cli.main(["export", str(path), "--to", "proof"]) == 0
    return runs.load(path), path / "proof"


def test_planted_faults_are_found(proven):
    figures = planted.count_outcomes(20, *proven)
    assert figures["missed"] == 0 and figures["weights"] == figures["bits"] == 10
    assert figures["refused"] + figures["harmless"] == 10 and figures["refused"] >= 7


def test_a_check_that_believes_everything_would_be_seen(proven, monkeypatch):
    monkeypatch.setattr(planted.check, "main", lambda *_, **__: 0)
    figures = planted.count_outcomes(6, *proven)
    assert figures["missed"] >= 4
