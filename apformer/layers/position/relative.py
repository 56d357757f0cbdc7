"""score(t, s) += table[h, t - s]: a learned number for each head and offset, the last one for all larger offsets.

Shaw et al. 2018 and Raffel et al. 2020, without buckets. The table has one offset for each place of the window, or
max_len offsets where there is no window.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers.position import Param, window_reach


@dataclass(frozen=True)
class Scheme:
    """A learned bias for each head and offset."""

    def bias(self, param: Param, positions_BT: Array, positions_BS: Array, cfg: Any, dtype: Any) -> Array:
        offsets = cfg.window or cfg.max_len
        table_HO = param("table", one_offset_each, (cfg.n_heads, offsets))
        offsets_BTS = positions_BT[:, :, None] - positions_BS[:, None, :]
        return jnp.moveaxis(table_HO[:, jnp.clip(offsets_BTS, 0, offsets - 1)], 0, 1)

    reach = window_reach


def one_offset_each(key: Array, shape_HO: tuple[int, int], dtype: Any = float) -> Array:
    """Return an initial table, (H, O), with which head h attends mostly to offset h + 1.

    Equal heads learn arithmetic several times more slowly, and with random ones perhaps none starts near an offset that
    is needed (experiments/LOG.md).
    """
    n_heads, offsets = shape_HO
    peak_HO = jax.nn.one_hot((jnp.arange(n_heads) + 1) % offsets, offsets, dtype=dtype)
    return 3.0 * peak_HO + 0.3 * jax.random.normal(key, shape_HO, dtype)
