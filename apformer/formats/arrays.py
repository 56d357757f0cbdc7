"""Named arrays on the disk, written and read by orbax: what a checkpoint is made of.

Orbax is used for one process alone, and what it says of a failed write or read becomes an OSError.
"""

import errno
import logging
import os
import sys
from contextlib import contextmanager
from functools import cache
from unittest import mock

import jax
import numpy as np


def orbax():
    """The module, imported late: it takes longer to import than the rest of apformer's command line."""
    from orbax.checkpoint import v1

    # Orbax logs every failure with its traceback before it raises, and asyncio those of the writes beside it; the user
    # gets our sentence instead.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    _leave_out_late_writes()
    return v1


@contextmanager
def _alone():
    """A context in which orbax waits for no other process of the run, since the first alone saves.

    Its options leave the others out of most, but not of the comparison of their paths (0.12): so JAX hides them too,
    and meanwhile nothing else may ask it for them.
    """
    if jax.process_count() == 1:
        yield
        return
    v1, this = orbax(), jax.process_index()
    own = {"primary_host": this, "active_processes": {this}, "barrier_sync_key_prefix": f"process {this}"}
    options = v1.options.MultiprocessingOptions(**own)
    with mock.patch("jax.process_count", lambda: 1), v1.Context(multiprocessing_options=options):
        yield


def write(path, arrays):
    """Write {name: array} to a new directory. Raises OSError."""
    try:
        # Orbax refuses arrays of no elements; load makes them from their shape.
        with _alone():
            orbax().save(path, {name: array for name, array in arrays.items() if array.size})
    except ValueError as error:
        raise _disk_error(error) from error


def read(path):
    """{name: array} of a directory. Raises OSError."""
    try:
        with _alone():
            return orbax().load(path, checkpointable_name="state")
    except ValueError as error:
        raise _disk_error(error) from error


def require_written(path, arrays):
    """Raise OSError unless the disk holds the arrays bit for bit: a manifest would also seal what a write has lost."""
    found = read(path)
    for name, array in arrays.items():
        if array.size and np.asarray(found[name]).tobytes() != array.tobytes():
            raise OSError(errno.EIO, f"{name} is not as it was written")


def _disk_error(error):
    """The OSError behind what tensorstore, under orbax, says of a file."""
    said = str(error)
    if "RESOURCE_EXHAUSTED" in said or "No space left" in said:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    reasons = (os.strerror(number) for number in (errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT))
    return OSError(errno.EIO, next((reason for reason in reasons if reason in said), said.partition("\n")[0][:200]))


@cache
def _leave_out_late_writes():
    """Let Python print no traceback of writes that end after the one which failed, whose error is raised.

    They tell a loop of asyncio that orbax has closed, each with a traceback through sys.unraisablehook.
    """
    before = sys.unraisablehook

    def hook(found):
        if "Event loop is closed" not in str(found.exc_value):
            before(found)

    sys.unraisablehook = hook
