"""Which task a run is of, by its data.

A task is a module that gives rows to train on and to choose by, and the loss: read_rows, describe_rows, sample,
validation_batch, make_loss, and a hint of what to try.
"""

from apformer import task, text_task, wide_task
from apformer.data import text, wide


def module(data):
    """The module of the task that a data Config is of."""
    return {wide.Config: wide_task, text.Config: text_task}.get(type(data), task)


def read(settings):
    """(settings, rows): what a run is trained on, and its settings with the vocabulary of a text."""
    rows = module(settings.data).read_rows(settings)
    return (text_task.fitted(settings, rows) if isinstance(settings.data, text.Config) else settings), rows
