"""List every progression of the generator, for an architecture that numpy does not compute. JAX alone screens it."""

from pathlib import Path

from apformer.tasks.progressions.proof import full_rows
from apformer.tasks.progressions.proof.full_rows import *  # noqa: F403, for a Case

FILES = (*full_rows.FILES, Path(full_rows.__file__))


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why the model is not computed."""
    return "the model is no decoder of model.py, which alone is computed"
