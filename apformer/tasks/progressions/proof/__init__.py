"""The contexts of a model, for apformer.proof."""

from dataclasses import asdict
from types import ModuleType

from apformer.settings import Settings
from apformer.tasks.progressions.proof import contexts, rows, whole


def of(settings: Settings) -> ModuleType:
    """Return the module that lists the contexts of a run's model: strings if windows bound what it reads, or rows."""
    return whole if rows.reach(asdict(settings.model)) is None else contexts
