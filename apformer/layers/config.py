"""Check a Config and the arguments of `apply`, and import the files of layers/ that a Config names."""

import pkgutil
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import numpy as np


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the sorted names of the modules in layers/<kind>/ and of the entry points `apformer.<kind>`."""
    files = pkgutil.iter_modules([str(Path(__file__).parent / kind)])
    return tuple(sorted({file.name for file in files} | entry_points(group=f"apformer.{kind}").names))


def load(kind: str, name: str) -> Any:
    """Import a module by its name in `names(kind)`. Raises plugins.Fault, a UserError."""
    from apformer import plugins  # here, since it imports the packages of layers by name

    return plugins.part(kind, name)


if TYPE_CHECKING:
    Position = Literal["alibi", "fire", "learned", "none", "relative", "rotary", "sinusoidal"]
    Similarity = Literal["additive", "cosine", "dot", "scaled_dot"]
else:
    Position, Similarity = (Literal[names(kind)] for kind in ("position", "similarity"))


def check(cfg: Any) -> None:
    """Raise ValueError for the first field whose value is none of its choices or out of range."""
    for field in fields(cfg):
        name, value = field.name, getattr(cfg, field.name)
        if get_origin(field.type) is Literal and value not in get_args(field.type):
            raise ValueError(f"{name} {value} is none of {', '.join(map(str, get_args(field.type)))}")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} {value} is not at least 0 and less than 1")
        valid = isinstance(value, int | np.integer) and value >= 1
        if field.type in (int, int | None) and value is not None and not valid:
            raise ValueError(f"{name} {value!r} is not a whole number of 1 or more")
    if hasattr(cfg, "n_heads") and cfg.d_model % cfg.n_heads:
        raise ValueError(f"d_model {cfg.d_model} is not a multiple of n_heads {cfg.n_heads}: change one of them")


def check_tokens(name: str, tokens: Any, most: int | None = None) -> None:
    """Raise ValueError unless tokens are an array of integers, (rows, tokens), of at most `most` tokens each."""
    shape = getattr(tokens, "shape", None)
    if shape is None or len(shape) != 2 or not np.issubdtype(tokens.dtype, np.integer):
        given_as = f"a {type(tokens).__name__}" if shape is None else f"of shape {shape}, {tokens.dtype}"
        raise ValueError(f"{name} is {given_as}: give integers (rows, tokens), such as jnp.asarray(tokens)[None]")
    if most is not None and shape[1] > most:
        raise ValueError(f"{shape[1]} tokens, but learned positions end at max_len {most}")


def check_capture(capture: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Raise ValueError unless every name to capture is among `names`."""
    if unknown := [name for name in capture if name not in names]:
        raise ValueError(f"capture {unknown[0]!r} is none of {', '.join(names)}: give a tuple, such as {names[:1]}")
