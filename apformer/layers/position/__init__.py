"""Position schemes: a scheme is a file of this folder, found by its name.

The file defines `Scheme`, a frozen dataclass of the scheme's options, with those of these methods that it needs:

    embed(param, x_BTD, positions_BT, max_len) -> x_BTD       add to the embeddings
    rotate(x_BTHK, positions_BT) -> x_BTHK                    rotate queries or keys
    bias(param, positions_BT, positions_BS, cfg, dtype)       add to the scores, (B, H, T, S); cfg: of the model
    reach(window) -> int | None                               tokens back that one layer sees, if by offsets alone
    max_tokens(max_len) -> int | None                         longest row

param(name, initializer, shape) makes a parameter, which does not decay. A key in a cache keeps its position.
"""

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from flax import linen as nn
from jax import Array

Param = Callable[..., Array]


def names() -> tuple[str, ...]:
    """Return the names of all schemes: the files of this folder."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> type:
    """Return the class `Scheme` of a name. Raises ValueError, which lists the known names."""
    if name not in names():
        raise ValueError(f"position {name} is none of {', '.join(names())}")
    return import_module(f"{__name__}.{name}").Scheme


def rotate(scheme: Any, x_BTHK: Array, positions_BT: Array) -> Array:
    """Return queries or keys, rotated by their positions."""
    return scheme.rotate(x_BTHK, positions_BT) if hasattr(scheme, "rotate") else x_BTHK


class Embedding(nn.Module):
    """Embeddings with what the scheme adds to them."""

    scheme: Any
    max_len: int

    @nn.compact
    def __call__(self, x_BTD: Array, positions_BT: Array) -> Array:
        if not hasattr(self.scheme, "embed"):
            return x_BTD
        return self.scheme.embed(self.param, x_BTD, positions_BT, self.max_len)


class Bias(nn.Module):
    """Bias of the scores, (B, H, T, S), or None."""

    scheme: Any
    cfg: Any

    @nn.compact
    def __call__(self, positions_BT: Array, positions_BS: Array, dtype: Any) -> Array | None:
        if not hasattr(self.scheme, "bias"):
            return None
        return self.scheme.bias(self.param, positions_BT, positions_BS, self.cfg, dtype)
