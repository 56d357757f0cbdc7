"""Checks of a Config and of what `apply` is given, each a ValueError, and the files of layers/ that a Config names."""

import pkgutil
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import numpy as np


@cache
def own(kind: str) -> tuple[str, ...]:
    """Return the names of a folder of layers/."""
    return tuple(file.name for file in pkgutil.iter_modules([str(Path(__file__).parent / kind)]))


@cache
def names(kind: str) -> tuple[str, ...]:
    """Return the sorted names of a folder of layers/, and of what packages bring by entry points `apformer.<kind>`."""
    return tuple(sorted({*own(kind)} | entry_points(group=f"apformer.{kind}").names))


def load(kind: Literal["position", "similarity"], name: str) -> Any:
    """Import the module of a name. Raises plugins.Fault, a UserError."""
    from apformer import plugins  # apformer.model is loaded without it

    group, wanted = f"apformer.{kind}", "Scheme" if kind == "position" else "score"
    module = plugins.load(group, name, own(kind), f"apformer.layers.{kind}", (wanted,))
    if kind == "position" and name not in own(kind) and {"embed", "rotate", "bias"}.isdisjoint(dir(module.Scheme)):
        says = f"whose Scheme has {', '.join(each for each in vars(module.Scheme) if each[0] != '_') or 'no method'}"
        raise plugins.fault(group, name, f"{says}, and none of embed, rotate and bias")
    return module


def compare(name: str, param: Any, q_BTHK: Any, k_BSHK: Any) -> Any:
    """Return the scores of a similarity. Raises plugins.Fault, a UserError, unless they are (B, H, T, S)."""
    scores, (B, T, H, _) = load("similarity", name).score(param, q_BTHK, k_BSHK), q_BTHK.shape
    wanted, shape = (B, H, T, k_BSHK.shape[1]), getattr(scores, "shape", None)
    if shape != wanted:
        from apformer import plugins

        says = f"which gives scores of shape {shape} where (B, H, T, S) is {wanted}"
        raise plugins.fault("apformer.similarity", name, says)
    return scores


if TYPE_CHECKING:
    Position = Literal["alibi", "fire", "learned", "none", "relative", "rotary", "sinusoidal"]
    Similarity = Literal["additive", "cosine", "dot", "scaled_dot"]
else:
    Position, Similarity = (Literal[names(kind)] for kind in ("position", "similarity"))


def check(cfg: Any) -> None:
    """Raise ValueError that names the first field at fault: choices, sizes, shares, and the width of heads."""
    for field in fields(cfg):
        name, value = field.name, getattr(cfg, field.name)
        if get_origin(field.type) is Literal and value not in get_args(field.type):
            raise ValueError(f"{name} {value} is none of {', '.join(map(str, get_args(field.type)))}")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} {value} is not in 0 up to, not including, 1")
        counts = isinstance(value, int | np.integer) and value >= 1
        if field.type in (int, int | None) and value is not None and not counts:
            raise ValueError(f"{name} {value!r} is no whole number of 1 or more")
    if hasattr(cfg, "n_heads") and cfg.d_model % cfg.n_heads:
        raise ValueError(f"d_model {cfg.d_model} is not a multiple of n_heads {cfg.n_heads}: change one of them")


def check_tokens(name: str, tokens: Any, most: int | None = None) -> None:
    """Raise ValueError unless tokens are an array of rows of integers, each of at most `most` tokens."""
    shape = getattr(tokens, "shape", None)
    if shape is None or len(shape) != 2 or not np.issubdtype(tokens.dtype, np.integer):
        found = f"a {type(tokens).__name__}" if shape is None else f"of shape {shape}, {tokens.dtype}"
        raise ValueError(f"{name} is {found}: give integers (rows, tokens), such as jnp.asarray(tokens)[None]")
    if most is not None and shape[1] > most:
        raise ValueError(f"{shape[1]} tokens, but learned positions end at max_len {most}")


def check_capture(capture: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Raise ValueError unless every name to capture is one of these."""
    if unknown := [name for name in capture if name not in names]:
        raise ValueError(f"capture {unknown[0]!r} is none of {', '.join(names)}: give a tuple, such as ('residual',)")
