"""Checks of what a model is given: the fields of its Config, and the shapes of its tokens.

An unknown choice, a size below 1, parts that do not go together and a wrong shape each raise a ValueError that names
the field or the argument.
"""

from dataclasses import fields
from typing import Literal, get_args, get_origin


def check(cfg, sizes, shares=()):
    """Raises ValueError that names the first field at fault.

    sizes: the fields that count something, or are None; shares: those that are a share below 1, such as dropout.
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


def check_heads(cfg):
    """Raises ValueError unless the width divides into heads."""
    if cfg.d_model % cfg.n_heads:
        raise ValueError(f"d_model {cfg.d_model} is not a multiple of n_heads {cfg.n_heads}")


def check_weighting(cfg):
    """Raises ValueError that names the field at fault where the parts of attention do not go together."""
    if cfg.weighting == "geometric" and cfg.attention_sink:
        raise ValueError("attention_sink is for a softmax: weighting geometric reads nothing without one")
    if cfg.weighting == "geometric" and cfg.window is not None:
        raise ValueError("weighting geometric takes keys in order: drop window")


def check_tokens(name, tokens):
    """Raises ValueError unless tokens are an array of rows of tokens."""
    shape = getattr(tokens, "shape", None)
    if shape is None or len(shape) != 2:
        found = f"a {type(tokens).__name__}" if shape is None else f"of shape {shape}"
        raise ValueError(
            f"{name} is {found}: give an array (rows, tokens), such as jnp.asarray(tokens)[None] for one row"
        )


def check_capture(capture, names):
    """Raises ValueError unless every name to capture is one of these."""
    for name in capture:
        if name not in names:
            raise ValueError(f"capture {name!r} is none of {', '.join(names)}")
