"""Checks of a Config and of the shapes of tokens: each raises a ValueError that names what is at fault."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin


def check(cfg: Any, sizes: tuple[str, ...], shares: tuple[str, ...] = ()) -> None:
    """Raise ValueError that names the first field at fault.

    `sizes` are the fields that count something, or are None. `shares` are those that are a share below 1.
    """
    for field in fields(cfg):
        value, choices = getattr(cfg, field.name), get_args(field.type)
        if get_origin(field.type) is Literal and value not in choices:
            raise ValueError(f"{field.name} {value} is none of {', '.join(choices)}")
    for name in sizes:
        if getattr(cfg, name) is not None and getattr(cfg, name) < 1:
            raise ValueError(f"{name} {getattr(cfg, name)} is less than 1")
    for name in shares:
        if not 0 <= getattr(cfg, name) < 1:
            raise ValueError(f"{name} {getattr(cfg, name)} is not in 0 up to, not including, 1")


def check_heads(cfg: Any) -> None:
    """Raise ValueError unless the width divides into heads."""
    if cfg.d_model % cfg.n_heads:
        raise ValueError(f"d_model {cfg.d_model} is not a multiple of n_heads {cfg.n_heads}")


def check_tokens(name: str, tokens: Any) -> None:
    """Raise ValueError unless tokens are an array of rows of tokens."""
    shape = getattr(tokens, "shape", None)
    if shape is None or len(shape) != 2:
        found = f"a {type(tokens).__name__}" if shape is None else f"of shape {shape}"
        raise ValueError(
            f"{name} is {found}: give an array (rows, tokens), such as jnp.asarray(tokens)[None] for one row"
        )


def check_capture(capture: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Raise ValueError unless every name to capture is one of these."""
    for name in capture:
        if name not in names:
            raise ValueError(f"capture {name!r} is none of {', '.join(names)}")
