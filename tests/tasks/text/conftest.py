"""A text to train on, for all tests of language models."""

import pytest

from tests.helpers.small_runs import TEXT


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "bottles.txt"
    path.write_text(TEXT)
    return path
