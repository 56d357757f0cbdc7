"""Find a plugin by its name: a module of apformer, or what an installed package brings.

A package brings a module by an entry point of its `pyproject.toml`:

    [project.entry-points."apformer.tasks"]
    reverse = "my_package.reverse"

Names from a `config.json` are looked up here and nowhere else, so that a run directory of a stranger imports nothing.
"""

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import SimpleNamespace
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


def part(kind: str, name: str) -> Any:
    """Import the module of a position scheme, or of a score of attention, which is checked where it is computed.

    Args:
        kind: "position" or "similarity".
        name: Name of the module.

    Raises:
        Fault: As `load`; of a scheme without a method, and of scores that are not (B, H, T, S).
    """
    group, needed = f"apformer.{kind}", "Scheme" if kind == "position" else "score"
    package = importlib.import_module(f"apformer.layers.{kind}")
    own = tuple(file.name for file in pkgutil.iter_modules(package.__path__))
    module = load(group, name, own, package.__name__, (needed,))
    if name in own:
        return module
    if kind == "similarity":

        def score(param: Any, q_BTHK: Any, k_BSHK: Any) -> Any:
            scores, (B, T, H, _) = module.score(param, q_BTHK, k_BSHK), q_BTHK.shape
            wanted, shape = (B, H, T, k_BSHK.shape[1]), getattr(scores, "shape", None)
            if shape != wanted:
                raise fault(group, name, f"which gives scores of shape {shape} where (B, H, T, S) is {wanted}")
            return scores

        return SimpleNamespace(score=score)
    if {"embed", "rotate", "bias"}.isdisjoint(dir(module.Scheme)):
        says = f"whose Scheme has {', '.join(each for each in vars(module.Scheme) if each[0] != '_') or 'no method'}"
        raise fault(group, name, f"{says}, and none of embed, rotate and bias")
    return module


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
