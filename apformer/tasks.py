"""Which task a run is of, by its data.

A task is a module that gives rows to train on and to choose by, and the loss: read_rows, describe_rows, sample,
validation_batch, make_loss, and a hint of what to try.
"""

from apformer import task, wide_task
from apformer.data import wide


def module(data):
    """The module of the task that a data Config is of."""
    return wide_task if isinstance(data, wide.Config) else task
