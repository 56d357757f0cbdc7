"""ALiBi: score(t, s) -= slope_h (t - s), with the slopes 2^(-8h/H) for h = 1 .. H (Press et al. 2022)."""

from dataclasses import dataclass

import jax.numpy as jnp


@dataclass(frozen=True)
class Scheme:
    """Each head prefers what is near, some heads more than others."""

    def bias(self, param, positions_BT, positions_BS, cfg, dtype):
        slopes_H = 2.0 ** (-8.0 * jnp.arange(1, cfg.n_heads + 1, dtype=dtype) / cfg.n_heads)
        offsets_BTS = (positions_BT[:, :, None] - positions_BS[:, None, :]).astype(dtype)
        return -slopes_H[None, :, None, None] * offsets_BTS[:, None]

    def reach(self, window):
        return None if window is None else window - 1
