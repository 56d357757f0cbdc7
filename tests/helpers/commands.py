"""Command lines that are refused: one sentence, the last line on standard error, and nothing on standard output."""

import re

from apformer import cli


def fails(capsys, pattern, exit_code, *args):
    """Run a command line, and demand its exit code and a last line that matches the pattern."""
    capsys.readouterr()
    assert cli.main([str(arg) for arg in args]) == exit_code
    out, err = capsys.readouterr()
    assert out == "" and re.search(pattern, err.splitlines()[-1]), err
