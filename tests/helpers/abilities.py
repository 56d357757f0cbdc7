"""The tasks whose runs a command takes, as its refusal of others lists them: a new task changes no test."""

from apformer import tasks


def able(command):
    """Their names, in order."""
    return ", ".join(name for name in tasks.names() if command in tasks.load(name).ABILITIES)
