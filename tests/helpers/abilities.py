"""The tasks whose runs a command takes, as its refusal of others lists them: a new task changes no test."""

from apformer import tasks


def able(name):
    """Their names, in order."""
    return ", ".join(task for task in tasks.names() if hasattr(tasks.load(task), name))
