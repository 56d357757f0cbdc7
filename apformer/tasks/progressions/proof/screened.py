"""List every progression of the generator, for an architecture that numpy does not compute. JAX alone screens it.

Fields of its Config say nothing here, though they may be named as those of `model.Config`: whole rows are asked.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from apformer.tasks.progressions.proof import full_rows, rows
from apformer.tasks.progressions.proof.full_rows import named, parts, strings, text, whole_rows  # noqa: F401

FILES = (*full_rows.FILES, Path(full_rows.__file__))


def fault(data: dict, cfg: dict) -> str | None:
    """Return the reason why the model is not computed."""
    return "the model is no decoder of model.py, which alone is computed"


def claim(data: dict, cfg: dict) -> str:
    """Return the claim about whole rows."""
    return rows.claim(data, {})


def count(data: dict, cfg: dict) -> int:
    """Return the number of contexts."""
    return rows.count(data, {})


def slices(data: dict, cfg: dict, weights: dict | None = None) -> Iterator[np.ndarray]:
    """Yield all rows as `rows.slices` does."""
    return rows.slices(data, {})
