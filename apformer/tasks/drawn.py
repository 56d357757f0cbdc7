"""The names of the protocol for a task whose rows are always drawn afresh: nothing is loaded, and `rows` is None."""


def load(settings):
    """(settings, None)"""
    return settings, None


def train_rows(rows):
    """None."""
    return None


def describe(settings, rows):
    """What config.json says of the data."""
    return {"source": "sampler"}


def files(rows):
    """Nothing."""
    return {}


def floor(settings, rows):
    """None: the loss counts no term that the terms before it leave open."""
    return None
