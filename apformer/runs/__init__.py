"""A run on disk: its directory, settings, metrics and checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apformer.runs.restore import Run


def load(run: str | Path | None = None, member: int | None = None, step: int | None = None) -> "Run":
    """Load the run in a directory: `runs.load("runs/latest").model.apply(tokens_BT)`. See `runs.restore.load`."""
    from apformer.runs import restore  # so that `apformer --help` does not wait for JAX

    return restore.load(run, member, step)
