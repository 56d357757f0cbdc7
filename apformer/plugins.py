"""Find a task or an architecture by its name: a module of apformer, or one that an installed package brings.

A package brings a module by an entry point of its `pyproject.toml`:

    [project.entry-points."apformer.tasks"]
    reverse = "my_package.reverse"

Names from a `config.json` are looked up here and nowhere else, so that a run directory of a stranger imports nothing.
"""

import importlib
from importlib.metadata import entry_points
from types import ModuleType

from apformer.errors import UserError


def names(group: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sorted names of a group: those of apformer itself, and those of installed packages."""
    return tuple(sorted({*own, *(entry.name for entry in entry_points(group=group))}))


def load(group: str, name: str, own: tuple[str, ...], package: str) -> ModuleType:
    """Import the module of a name.

    Args:
        group: Group of entry points, `apformer.tasks` or `apformer.architectures`.
        name: Name of the module.
        own: Names that apformer brings itself, as modules of `package`.
        package: Package of apformer's own modules.

    Raises:
        UserError: Exit code USAGE, for an unknown name, for a name that two packages bring, and for a module that
            cannot be imported.
    """
    kind = group.rpartition(".")[2].removesuffix("s")
    found = [*entry_points(group=group, name=name)] if isinstance(name, str) else []
    brought = (["apformer"] if name in own else []) + sorted(
        getattr(entry.dist, "name", entry.value) for entry in found
    )
    if len(brought) > 1:
        raise UserError(f"{' and '.join(brought)} bring the {kind} {name} each: uninstall all but one")
    if name in own:
        return importlib.import_module(f"{package}.{name}")
    if not brought:
        known = ", ".join(names(group, own))
        raise UserError(
            f"there is no {kind} {name!r} here, only {known}: the package that brings it may not be "
            "installed; install it, or give one of these"
        )
    entry = found[0]
    try:
        return entry.load()
    except Exception as error:
        raise UserError(
            f"{brought[0]} brings the {kind} {name}, which cannot be imported ({type(error).__name__}: {error})"
            f": repair or uninstall {brought[0]}"
        ) from error


def require(module: ModuleType, kind: str, name: str, wanted: tuple[str, ...]) -> None:
    """Raise UserError (exit USAGE) that lists the names of a protocol that a module lacks."""
    missing = [each for each in wanted if not hasattr(module, each)]
    if missing:
        raise UserError(
            f"the {kind} {name} ({getattr(module, '__name__', module)}) lacks {', '.join(missing)}"
            ": define or import these names there"
        )
