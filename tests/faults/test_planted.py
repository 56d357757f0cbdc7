"""Faults planted in a proof are found, and the trial of them would see one that is missed."""

from importlib import import_module

import pytest

pytestmark = pytest.mark.faults
planted = import_module("faults.planted")


# The model of the trial, certified in less time: with fewer rows to choose from, and none of two terms alone.
SOON = f"{planted.FLAGS} --mined_per_hard 4 --prefix_rows 0 --steps 600 --log_every 10 --save_every 50"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return planted.train_and_export(tmp_path_factory.mktemp("planted"), SOON)


def test_planted_faults_are_found(trained):
    figures = planted.count_outcomes(20, *trained)
    assert figures["missed"] == 0 and figures["weights"] == figures["bits"] == 10
    assert figures["refused"] + figures["harmless"] == 10 and figures["refused"] >= 7


def test_a_check_that_believes_everything_would_be_seen(trained, monkeypatch):
    monkeypatch.setattr(planted.check, "main", lambda *_, **__: 0)
    figures = planted.count_outcomes(6, *trained)
    assert figures["missed"] >= 4
