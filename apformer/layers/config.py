"""What the Config of every model refuses: a choice that is none, a size below 1, dropout that is no share."""

from dataclasses import fields
from typing import Literal, get_args, get_origin


def check(cfg, sizes):
    """Raises ValueError that names the first field at fault; `sizes` are the fields that count something, or None."""
    for field in fields(cfg):
        value, choices = getattr(cfg, field.name), get_args(field.type)
        if get_origin(field.type) is Literal and value not in choices:
            raise ValueError(f"{field.name} {value} is none of {', '.join(choices)}")
    for name in sizes:
        if getattr(cfg, name) is not None and getattr(cfg, name) < 1:
            raise ValueError(f"{name} {getattr(cfg, name)} is less than 1")
    if not 0 <= cfg.dropout < 1:
        raise ValueError(f"dropout {cfg.dropout} is not in 0 up to, not including, 1")
