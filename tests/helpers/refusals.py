"""A refusal is one sentence on one line, with an exit code."""

from contextlib import contextmanager

import pytest

from apformer.errors import UserError


@contextmanager
def refused(exit_code, sentence=None):
    """Expect a UserError of this exit code, one line in which the pattern is found."""
    with pytest.raises(UserError, match=sentence) as caught:
        yield caught
    assert caught.value.exit_code == exit_code and "\n" not in str(caught.value)
