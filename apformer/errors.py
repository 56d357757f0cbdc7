"""Faults of the user's input or machine: one sentence each, and the exit code of each kind.

A `UserError` carries one sentence: what is wrong (flag, file or line) and what to do. A command or a script that runs
under `machine.process.guard` prints it without a traceback and exits with its code.
"""

import shlex

USAGE = 2
DATA = 3
CHECKPOINT = 4
NON_FINITE = 5
DISK = 6
LOCKED = 7
NOT_CERTIFIED = 8
LOST = 9

MOST = 4000  # characters of a sentence


class UserError(Exception):
    """One sentence for the user, and the exit code of the command that raised it: USAGE unless another is given."""

    def __init__(self, sentence: str, exit_code: int = USAGE) -> None:
        super().__init__(_one_line(sentence))
        self.exit_code = exit_code


def typed(*words: object) -> str:
    """Return an `apformer` command in backquotes, for a remedy; a path with a space is quoted."""
    return f"`{shlex.join(['apformer', *map(str, words)])}`"


def _one_line(sentence: str) -> str:
    """Escape what would move a terminal's cursor, in a sentence that may quote a file, and leave out a long middle."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in sentence)
    return line if len(line) <= MOST else f"{line[: MOST // 2]} ... {line[-MOST // 2 :]}"
