"""Find a plugin by its name: a module of apformer, or what an installed package brings.

A package brings a module by an entry point of its `pyproject.toml`:

    [project.entry-points."apformer.tasks"]
    reverse = "my_package.reverse"

Names from a `config.json` are looked up here and nowhere else, so that a run directory of a stranger imports nothing.
"""

import importlib
from importlib.metadata import entry_points
from typing import Any

from apformer.errors import UserError


class Fault(UserError):
    """A plugin that is not installed, or that its package has to mend."""


def names(group: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sorted names of a group: those of apformer itself, and those of installed packages."""
    return tuple(sorted({*own, *(entry.name for entry in entry_points(group=group))}))


def load(group: str, name: str, own: tuple[str, ...], package: str, wanted: tuple[str, ...] = ()) -> Any:
    """Import the module of a name.

    Args:
        group: Group of entry points, such as `apformer.tasks`.
        name: Name of the module.
        own: Names that apformer brings itself, as modules of `package`.
        package: Package of apformer's own modules.
        wanted: Names that the module has. One that begins with a capital and goes on small is of a frozen dataclass.

    Raises:
        Fault: Exit code USAGE, for an unknown name, for a name that two packages bring, for a module that cannot be
            imported, and for one that lacks what is wanted.
    """
    brought = _packages(group, name, own)
    if len(brought) > 1:
        raise Fault(f"{' and '.join(brought)} bring the {_kind(group)} {name} each: uninstall all but one")
    if not brought:
        raise absent(group, name, names(group, own))
    try:
        if name in own:
            found = importlib.import_module(f"{package}.{name}")
        else:
            (entry,) = entry_points(group=group, name=name)
            found = entry.load()
    except Exception as error:
        raise fault(group, name, f"which cannot be imported ({type(error).__name__}: {error})") from error
    if lacking := [each for each in wanted if not _has(found, each)]:
        articles = ("the frozen dataclass " * each.istitle() + each for each in lacking)
        raise fault(group, name, f"which lacks {', '.join(articles)}")
    return found


def absent(group: str, name: Any, known: tuple[str, ...]) -> Fault:
    """Return the Fault of a name that no installed package brings."""
    return Fault(
        f"there is no {_kind(group)} {name!r} here, only {', '.join(known)}: the package that brings it may not be "
        "installed; install it, or give one of these"
    )


def fault(group: str, name: str, says: str) -> Fault:
    """Return the Fault of a plugin that its package has to mend."""
    package = " and ".join(_packages(group, name))
    return Fault(f"{package} brings the {_kind(group)} {name}, {says}: repair or uninstall {package}")


def _kind(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")


def _packages(group: str, name: Any, own: tuple[str, ...] = ()) -> list[str]:
    entries = entry_points(group=group, name=name)
    return ["apformer"] * (name in own) + sorted(getattr(entry.dist, "name", entry.value) for entry in entries)


def _has(module: Any, name: str) -> bool:
    if not name.istitle():
        return hasattr(module, name)
    return getattr(getattr(getattr(module, name, None), "__dataclass_params__", None), "frozen", False)
