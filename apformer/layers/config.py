"""What the Config of a model refuses: a choice that is none, a size below 1, parts that do not go together."""

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
    if not 0 <= getattr(cfg, "dropout", 0) < 1:
        raise ValueError(f"dropout {cfg.dropout} is not in 0 up to, not including, 1")


def check_heads(cfg):
    """Raises ValueError unless the width divides into heads."""
    if cfg.d_model % cfg.n_heads:
        raise ValueError(f"d_model {cfg.d_model} is not a multiple of n_heads {cfg.n_heads}")


def check_attention(cfg):
    """Raises ValueError that names the field at fault where the parts of attention do not go together."""
    check_heads(cfg)
    if cfg.position == "rotary" and (cfg.d_model // cfg.n_heads) % 2:
        raise ValueError(f"rotary positions need an even head width, not {cfg.d_model // cfg.n_heads}")
    if cfg.position == "periodic" and cfg.window is None:
        raise ValueError("position periodic needs a window: give 1 or 2")
    if not 0 <= cfg.look_between <= (cfg.n_heads if cfg.position == "periodic" else 0):
        raise ValueError(f"look_between {cfg.look_between} is not in 0 to n_heads, or not 0 without periodic positions")
    if cfg.look_between and cfg.similarity in ("cosine", "additive"):
        raise ValueError(f"look_between sharpens products of queries and keys: similarity {cfg.similarity} has none")
    if cfg.similarity == "geometric" and cfg.attention_sink:
        raise ValueError("attention_sink is for a softmax: similarity geometric reads nothing without one")
    if cfg.similarity == "geometric" and cfg.window is not None and cfg.position != "periodic":
        raise ValueError("similarity geometric takes keys in order: drop window, or use position periodic")
