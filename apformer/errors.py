"""What goes wrong through no fault of the program, and the exit code each kind has.

A `UserError` carries one sentence: what is wrong (flag, file or line) and what to do. The command line prints it
without a traceback and exits with its code.
"""

USAGE = 2
DATA = 3
CHECKPOINT = 4
NON_FINITE = 5
DISK = 6
LOCKED = 7


class UserError(Exception):
    """One sentence for the user, and the exit code of the command that raised it."""

    def __init__(self, sentence: str, exit_code: int):
        super().__init__(sentence)
        self.exit_code = exit_code
