"""Commands that a trial starts find what those of another trial compiled."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def programs_are_shared(pytestconfig):
    """In a folder that is not that of the tests: a command that is killed may leave half a program there."""
    if getattr(pytestconfig, "cache", None) is not None:
        os.environ["APFORMER_FAULTS_CACHE"] = str(pytestconfig.cache.mkdir("faults"))
