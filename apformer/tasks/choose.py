"""Which task a run is of, by its data.

A task is a module that gives rows to train on and to choose by, and the loss: read_rows, describe_rows, sample,
validation_batch, make_loss, a hint of what to try, and the settings that stay ON_HOST; one of language has settings
fitted to its rows.
"""

from apformer.tasks.digits import generator
from apformer.tasks.digits import training as wide_task
from apformer.tasks.progressions import training as task
from apformer.tasks.text import corpus as text
from apformer.tasks.text import training as text_task
from apformer.tasks.translation import corpus, training

LANGUAGE = (
    text.Config,
    corpus.Config,
)  # whose tokens are learned from their text, and where nobody knows what is right


def module(data):
    """The module of the task that a data Config is of."""
    return {generator.Config: wide_task, text.Config: text_task, corpus.Config: training}.get(type(data), task)


def read(settings):
    """(settings, rows): what a run is trained on, and its settings with the vocabulary of a language."""
    task = module(settings.data)
    rows = task.read_rows(settings)
    return (task.fitted(settings, rows) if isinstance(settings.data, LANGUAGE) else settings), rows
