"""Position schemes: a scheme is a file of this folder, or a module that an installed package brings.

The file defines `Scheme`, a frozen dataclass of the scheme's options, with those of these methods that it needs:

    embed(param, x_BTD, positions_BT, max_len) -> x_BTD       add to the embeddings
    rotate(x_BTHK, positions_BT) -> x_BTHK                    rotate queries or keys
    bias(param, positions_BT, positions_BS, cfg, dtype)       add to the scores, (B, H, T, S); cfg: of the model
    reach(window) -> int | None                               tokens back that a layer sees, if by offsets alone
    max_tokens(max_len) -> int | None                         most tokens of a row; None for no bound

param(name, initializer, shape) makes a parameter, which does not decay. A key in a cache keeps its position. Positions
may be one row for all rows. A bias is finite for every pair, also for keys after the query, which are masked later.
"""

from collections.abc import Callable
from typing import Any

from flax import linen as nn
from jax import Array

Param = Callable[..., Array]


def rotate(scheme: Any, x_BTHK: Array, positions_BT: Array) -> Array:
    """Return queries or keys, rotated by their positions."""
    return scheme.rotate(x_BTHK, positions_BT) if hasattr(scheme, "rotate") else x_BTHK


def window_reach(scheme: Any, window: int | None) -> int | None:
    """Return how many tokens back a layer sees. It is the method `reach` of schemes that depend on offsets alone."""
    return None if window is None else window - 1


class Part(nn.Module):
    """Call the method "embed" or "bias" of a scheme with its parameters; return `otherwise` if the scheme lacks it."""

    scheme: Any
    method: str

    @nn.compact
    def __call__(self, otherwise: Any, *args: Any) -> Any:
        return getattr(self.scheme, self.method)(self.param, *args) if hasattr(self.scheme, self.method) else otherwise
