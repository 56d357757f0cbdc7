"""Let standard output print any character, and keep standard error from stopping a command."""

import io
import os
import select
import sys
from contextlib import suppress
from typing import Any

from apformer.errors import DISK, UserError

PATIENCE = 5  # seconds until nobody is assumed to read a full pipe


def prepare() -> None:
    """Let output print any character in any encoding. Raises UserError (exit DISK) if standard output is closed."""
    if sys.stderr is None:  # closed: print would use standard output instead
        sys.stderr = open(os.devnull, "w")
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")
        raise UserError("standard output is closed: send it to a file, or to /dev/null", DISK)
    if sys.stderr is sys.__stderr__:
        file = io.BufferedWriter(_Standing(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(file, sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):  # a notebook's has none, and takes all characters
            reconfigure(errors="backslashreplace")


class _Standing(io.FileIO):
    """Standard error that drops a line which cannot be written, or which nobody reads."""

    waits = PATIENCE

    def write(self, data: Any, /) -> int | None:
        if not select.select([], [self], [], self.waits)[1]:
            self.waits = 0  # until somebody reads again
            return len(data)
        self.waits = PATIENCE
        with suppress(OSError):
            return super().write(data)
        return len(data)
