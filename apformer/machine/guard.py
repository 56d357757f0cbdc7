"""Runs a command or a script: a fault becomes one sentence and an exit code; a blocked standard error stops nothing."""

import io
import os
import select
import sys
from contextlib import suppress

from apformer.errors import DISK, UserError
from apformer.machine import signals

PATIENCE = 5  # seconds until a pipe that is full is taken for one that nobody reads


def guard(program, call):
    """The exit code of a process that calls call(). What is not the user's to mend keeps its traceback."""
    with signals.heard(program):
        exit_code = _called(program, call)
    try:
        sys.stdout.flush()
    except OSError:
        # This has been said, and the interpreter would say it again as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code


def _called(program, call):
    try:
        _prepare_streams()
        exit_code = 0
        try:
            call()
        except SystemExit as stop:
            exit_code = stop.code or 0
        sys.stdout.flush()
        return exit_code
    except UserError as error:
        return _say(program, error, error.exit_code)
    except BrokenPipeError:
        return 0  # Who reads our output has had enough, as in `apformer predict ... | head`.
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _say(program, f"{place}{error.strerror or error}; see `apformer doctor` for disk and permissions", DISK)
    except KeyboardInterrupt:
        return _say(program, "stopped", 130)


def _prepare_streams():
    """Let output print any character in any encoding. Raises UserError (exit DISK) if standard output is closed."""
    if sys.stderr is None:  # closed: print would take standard output in its place
        sys.stderr = open(os.devnull, "w")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
        raise UserError("standard output is closed: send it to a file, or to /dev/null", DISK)
    if sys.stderr is sys.__stderr__:
        file = io.BufferedWriter(_Standing(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(file, sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream of a notebook, which takes all characters
            stream.reconfigure(errors="backslashreplace")


class _Standing(io.FileIO):
    """Standard error, which no run stops for: a line that cannot be written, or that nobody reads, is left out."""

    waits = PATIENCE

    def write(self, data):
        if not select.select([], [self], [], self.waits)[1]:
            self.waits = 0  # until somebody reads again
            return len(data)
        self.waits = PATIENCE
        with suppress(OSError):
            return super().write(data)
        return len(data)


def _say(program, sentence, exit_code):
    with suppress(OSError):
        print(f"{program}: {sentence}", file=sys.stderr)
    return exit_code
