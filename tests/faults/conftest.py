"""Trials are imported from experiments, and commands that one starts find what those of another compiled."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))


@pytest.fixture(scope="session", autouse=True)
def programs_are_shared(pytestconfig):
    """In a folder that is not that of the tests: a command that is killed may leave half a program there."""
    if getattr(pytestconfig, "cache", None) is not None:
        os.environ["APFORMER_FAULTS_CACHE"] = str(pytestconfig.cache.mkdir("faults"))
