"""Contexts of a model of progressions, for apformer.proof."""

from dataclasses import asdict
from types import ModuleType

from apformer.settings import Settings
from apformer.tasks.progressions.proof import contexts, full_rows, rows, screened


def of(settings: Settings) -> ModuleType:
    """Return the module that lists the contexts of a run: short strings if windows bound attention, else full rows."""
    if settings.architecture != "model":  # another network, even where its fields have the same names
        return screened
    return full_rows if rows.reach(asdict(settings.model)) is None else contexts
