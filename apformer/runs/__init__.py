"""A run on disk: its directory, settings, metrics and checkpoints."""


def load(run=None, member=None, step=None):
    """The trained run in a directory: `runs.load("runs/latest").model.apply(tokens_BT)`. See `runs.restore.load`."""
    from apformer.runs import restore  # so that `apformer --help` does not wait for JAX

    return restore.load(run, member, step)
