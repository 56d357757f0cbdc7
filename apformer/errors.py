"""What goes wrong through no fault of the program, and the exit code each kind has.

A `UserError` carries one sentence: what is wrong (flag, file or line) and what to do. A command or a script that runs
under `machine.guard` prints it without a traceback and exits with its code.
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
    """One sentence for the user, and the exit code of the command that raised it."""

    def __init__(self, sentence: str, exit_code: int):
        super().__init__(_one_line(sentence))
        self.exit_code = exit_code


def typed(*words):
    """An `apformer` command in backquotes, for a remedy. A path with a space is quoted, so that a user can type it."""
    return f"`{shlex.join(['apformer', *map(str, words)])}`"


def _one_line(sentence):
    """A sentence that may quote a file: what would move a terminal's cursor is escaped, a long middle is left out."""
    sentence = _cut(sentence)
    if sentence.isprintable():
        return sentence
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in sentence)
    return _cut("".join(escaped))


def _cut(sentence):
    if len(sentence) <= MOST:
        return sentence
    return f"{sentence[: MOST // 2]} ... {sentence[-MOST // 2 :]}"
