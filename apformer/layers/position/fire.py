"""score(t, s) += f_h(psi(p_t - p_s) / psi(max(L, p_t))), psi(x) = log(c x + 1): FIRE (Li et al. 2023, 2310.04418).

f is a small network from one number to one for each head, and c and L are learned. The divisor keeps the input of f
within 0 .. 1, so that rows longer than those of training give f no new inputs. For queries at positions below L it is
constant: otherwise a short row would look like a long one.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers.position import Param


@dataclass(frozen=True)
class Scheme:
    """A learned function of the distance to the key, as a share of the query's position."""

    bias_width: int = 32
    """Width of the inner layer of the function."""
    threshold: float = 64.0
    """L at the beginning of training: queries before it divide by psi(L)."""

    def __post_init__(self) -> None:
        if self.bias_width < 1:
            raise ValueError(f"bias_width {self.bias_width} is less than 1")
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"threshold {self.threshold} is not a finite number above 0")

    def bias(self, param: Param, positions_BT: Array, positions_BS: Array, cfg: Any, dtype: Any) -> Array:
        width = self.bias_width
        c, multiplier, up_U, up_bias_U, down_UH, down_bias_H = (
            param(name, initial, shape).astype(dtype)
            for name, initial, shape in (
                ("c", nn.initializers.constant(0.1), ()),
                ("multiplier", nn.initializers.ones, ()),  # of L, which itself is too large for optimizer steps to move
                ("up", nn.initializers.normal(1.0), (width,)),
                # With biases of 0, f would begin as a straight line: these spread its kinks over 0 .. 1.
                ("up_bias", partial(jax.random.uniform, minval=-1.0, maxval=1.0), (width,)),
                ("down", nn.initializers.normal(width**-0.5), (width, cfg.n_heads)),
                ("down_bias", nn.initializers.zeros, (cfg.n_heads,)),
            )
        )
        position_BT1 = positions_BT[:, :, None].astype(dtype)
        offset_BTS = jnp.maximum(position_BT1 - positions_BS[:, None, :].astype(dtype), 0)
        psi = lambda x: jnp.log1p(abs(c) * x)  # noqa: E731
        share_BTS = psi(offset_BTS) / (psi(jnp.maximum(abs(multiplier) * self.threshold, position_BT1)) + 1e-6)
        inner_BTSU = nn.relu(share_BTS[..., None] * up_U[None, None, None] + up_bias_U[None, None, None])
        return jnp.einsum("BTSU,UH->BHTS", inner_BTSU, down_UH) + down_bias_H[None, :, None, None]
