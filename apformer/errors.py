"""Faults of the user's input or machine: one sentence each, and the exit code of each kind.

A `UserError` carries one sentence: what is wrong (flag, file or line) and what to do. A command or a script that runs
under `machine.process.guard` prints it without a traceback and exits with its code.
"""

import shlex
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

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
        # A sentence may quote a file: escape what would move a terminal's cursor, and leave out a long middle.
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in sentence)
        super().__init__(line if len(line) <= MOST else f"{line[: MOST // 2]} ... {line[-MOST // 2 :]}")
        self.exit_code = exit_code


class Finding(NamedTuple):
    """State of a part of a folder.

    Attributes:
        what: Name of the part.
        says: Sentence about its state.
        code: Exit code of a fault, 0 if the part is sound.
    """

    what: str
    says: str
    code: int = 0


def found(what: str, check: Callable[..., str], *args: Any) -> Finding:
    """Return the Finding with the sentence that check(*args) returns, or with the UserError that it raises."""
    try:
        return Finding(what, check(*args))
    except UserError as fault:
        return Finding(what, str(fault), fault.exit_code)


def tell(line: str) -> None:
    """Print a line to standard error: a note or a warning, which is no result."""
    print(line, file=sys.stderr)


def typed(*words: object) -> str:
    """Return an `apformer` command in backquotes, as a user types it; a path with a space is quoted."""
    return f"`{shlex.join(['apformer', *map(str, words)])}`"
