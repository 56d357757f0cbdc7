"""Find a plugin by its name: a module of apformer, or what an installed package brings.

A package brings a module by an entry point of its `pyproject.toml`:

    [project.entry-points."apformer.tasks"]
    reverse = "my_package.reverse"

Names from a `config.json` are looked up here and nowhere else: so the run directory of a stranger cannot import other
code.
"""

import dataclasses
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any, get_type_hints

import jax
import jax.numpy as jnp

from apformer.errors import UserError

_used: dict[str, str] = {}  # {name of a plugin's module: its package}, the last to be loaded last


class Fault(UserError):
    """A plugin that is not installed, or that is faulty."""


def names(group: str, builtin: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sorted names of a group: the built-in ones and those of installed packages."""
    return tuple(sorted({*builtin, *_entries(group).names}))


def versions() -> dict[str, str]:
    """Return {name: version} of the installed packages that bring plugins."""
    groups = (group for group in entry_points().groups if group.startswith("apformer."))
    packages = (entry.dist for group in groups for entry in _entries(group))
    return {package.name: package.version for package in packages if package}


def blame(error: Exception) -> str | None:
    """Return a sentence about an error in a package's code, or in a call of its function; None for other errors."""
    called = re.findall(r"^(\w+)\S*\(\) ", str(error))  # as in "score() takes 2 positional arguments but 3 were given"
    for module, package in reversed(_used.items()):
        inside = re.compile(rf"{module.partition('.')[0]}\b").match
        places = [
            f"{frame.f_code.co_filename}, line {line}"
            for frame, line in walk_tb(error.__traceback__)
            if inside(str(frame.f_globals.get("__name__")))
        ]
        if places := places or [module for name in called if hasattr(sys.modules[module], name)]:
            says = f"{'; '.join(places)} ({type(error).__name__}: {' '.join(str(error).split())})"
            return f"{package} is at fault in {says}: repair or uninstall {package}"
    return None


def load(group: str, name: str, builtin: tuple[str, ...], package: str, required: tuple[str, ...] = ()) -> Any:
    """Import the module of a name.

    Args:
        group: Group of entry points, such as `apformer.tasks`.
        name: Name of the module.
        builtin: Names of built-in modules, in `package`.
        package: Package of the built-in modules.
        required: Names that the module must have. A capitalised one, such as `Config`, must be a frozen dataclass.

    Raises:
        Fault: Exit code USAGE, for an unknown name, for a name that two packages bring, for a module that cannot be
            imported, and for one that lacks a required name.
    """
    brought = _packages(group, name, builtin)
    if len(brought) > 1:
        raise Fault(f"{' and '.join(brought)} bring the {_kind(group)} {name} each: uninstall all but one")
    if not brought:
        raise absent(group, name, names(group, builtin))
    try:
        if name in builtin:
            module = importlib.import_module(f"{package}.{name}")
        else:
            (entry,) = _entries(group).select(name=name)
            module = entry.load()
            _used[entry.module] = _used.pop(entry.module, brought[0])
    except (Exception, SystemExit) as error:
        raise fault(group, name, f"which cannot be imported ({type(error).__name__}: {error})") from error
    if lacking := [each for each in required if not _has(module, each)]:
        articles = ("the frozen dataclass " * each.istitle() + each for each in lacking)
        raise fault(group, name, f"which lacks {', '.join(articles)}")
    for kind in (getattr(module, each) for each in required if each.istitle()):
        for field in dataclasses.fields(kind):
            if isinstance(field.type, str):  # after `from __future__ import annotations`
                try:
                    field.type = get_type_hints(kind, include_extras=True)[field.name]
                except (NameError, SyntaxError, TypeError) as error:
                    raise fault(group, name, f"whose {kind.__name__} has a wrong type ({error})") from error
    return module


def part(kind: str, name: str) -> Any:
    """Import the module of a position scheme or of an attention score. A package's is called once, on small arrays.

    Args:
        kind: "position" or "similarity".
        name: Name of the module.

    Raises:
        Fault: As `load`; for a scheme without a method, and for a wrong shape of what it returns.
    """
    group, needed = f"apformer.{kind}", "Scheme" if kind == "position" else "score"
    package = importlib.import_module(f"apformer.layers.{kind}")
    builtin = tuple(file.name for file in pkgutil.iter_modules(package.__path__))
    module = load(group, name, builtin, package.__name__, (needed,))
    if name in builtin:
        return module
    owner = module if kind == "similarity" else module.Scheme
    q_BTHK, k_BSHK = jnp.ones((4, 3, 2, 64)), jnp.ones((4, 5, 2, 64))  # all axes differ, so that none can be confused
    positions = [jnp.indices((2, size))[1] for size in (3, 5)]
    cfg = SimpleNamespace(n_heads=1, d_model=64, max_len=64, window=None)
    trials = (
        ("score", "(B, H, T, S)", (4, 2, 3, 5), lambda param, _: owner.score(param, q_BTHK, k_BSHK)),
        ("embed", "(B, T, D)", (2, 3, 64), lambda param, x: owner().embed(param, x, positions[0][:1], 64)),
        ("rotate", "(B, T, H, K)", (2, 3, 1, 64), lambda _, x: owner().rotate(x, positions[0])),
        ("bias", "(B, H, T, S)", (2, 1, 3, 5), lambda param, _: owner().bias(param, *positions, cfg, jnp.float32)),
    )
    brought = [trial for trial in trials if hasattr(owner, trial[0])]
    if not brought:
        raise fault(group, name, "whose Scheme has none of the methods embed, rotate and bias")
    for method, axes, expected, call in brought:
        if shape := _wrong_shape(call, expected):
            raise fault(group, name, f"whose {method} gives shape {shape} where {axes} is {expected}")
    return module


def _wrong_shape(call: Callable[..., Any], expected: tuple[int, ...]) -> str | None:
    """Return the shape of call(param, array) for a float32 array of the expected shape if it is another."""
    found = []

    def trial(array: jax.Array) -> None:
        result = call(lambda _, initializer, *args, **options: initializer(jax.random.key(0), *args, **options), array)
        found.append(getattr(result, "shape", None))

    with suppress(Exception):  # it may need other sizes: the model then calls it with its own
        jax.eval_shape(trial, jax.ShapeDtypeStruct(expected, "float32"))
    return str(found[0]) if found and found[0] != expected else None


def absent(group: str, name: Any, names: tuple[str, ...]) -> Fault:
    """Return the Fault of a name that no installed package brings."""
    return Fault(
        f"there is no {_kind(group)} {name!r} here, only {', '.join(names)}: the package that brings it may not be "
        "installed; install it, or give one of these"
    )


def fault(group: str, name: str, says: str) -> Fault:
    """Return the Fault of a faulty plugin. says: a clause about it, which begins with "which" or "whose"."""
    package = " and ".join(_packages(group, name))
    return Fault(f"{package} brings the {_kind(group)} {name}, {says}: repair or uninstall {package}")


def _entries(group: str) -> EntryPoints:
    """Return the entry points of a group, read again only if sys.path or a folder of it has changed since."""
    folders = filter(os.path.isdir, (folder or "." for folder in sys.path))
    return _read(group, tuple((folder, os.stat(folder).st_mtime_ns) for folder in folders))


@cache
def _read(group: str, state: tuple) -> EntryPoints:
    return entry_points(group=group)


def _kind(group: str) -> str:
    return group.rpartition(".")[2].removesuffix("s")


def _packages(group: str, name: Any, builtin: tuple[str, ...] = ()) -> list[str]:
    entries = _entries(group).select(name=name)
    return ["apformer"] * (name in builtin) + sorted(getattr(entry.dist, "name", entry.value) for entry in entries)


def _has(module: Any, name: str) -> bool:
    if not name.istitle():
        return hasattr(module, name)
    return getattr(getattr(getattr(module, name, None), "__dataclass_params__", None), "frozen", False)
