"""ALiBi: score(t, s) -= slope_h (t - s), with the slopes 2^(-8h/H) for h = 1 .. H (Press et al. 2022)."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from apformer.layers.position import Param, window_reach


@dataclass(frozen=True)
class Scheme:
    """A bias towards near keys, of another strength in each head."""

    def bias(self, param: Param, positions_BT: Array, positions_BS: Array, cfg: Any, dtype: Any) -> Array:
        slopes_H = 2.0 ** (-8.0 * jnp.arange(1, cfg.n_heads + 1, dtype=dtype) / cfg.n_heads)
        offsets_BTS = (positions_BT[:, :, None] - positions_BS[:, None, :]).astype(dtype)
        return -slopes_H[None, :, None, None] * offsets_BTS[:, None]

    reach = window_reach
