"""Contexts of a model of progressions, for apformer.proof."""

from types import ModuleType

from apformer.settings import Settings, proof_config
from apformer.tasks.progressions.proof import contexts, full_rows, rows


def of(settings: Settings) -> ModuleType:
    """Return the module that lists the contexts of a run: short strings if windows bound attention, else full rows."""
    return full_rows if rows.reach(proof_config(settings)) is None else contexts
