"""Contexts of a model of progressions, for apformer.proof."""

from dataclasses import asdict
from types import ModuleType

from apformer.settings import Settings
from apformer.tasks.progressions.proof import contexts, full_rows, rows


def of(settings: Settings) -> ModuleType:
    """Return the module that lists the contexts of a run: short strings if windows bound attention, else full rows."""
    cfg = asdict(settings.model) | {"architecture": settings.architecture}
    return full_rows if rows.reach(cfg) is None else contexts
