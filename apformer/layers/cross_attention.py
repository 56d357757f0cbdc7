"""Attention from the tokens of a target to a source (Vaswani et al. 2017, 3.2.3)."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import position
from apformer.layers.attention import attend, attend_options, join, project, projection
from apformer.layers.masks import View


class CrossAttention(nn.Module):
    """Attention of n_heads heads to a source. Rotary positions rotate its queries and keys."""

    cfg: Any  # the Config of the model

    @nn.compact
    def __call__(self, x_BTD: Array, view: View, source: "Source") -> tuple[Array, Array | None]:
        """Return (y_BTD, weights_BHTS).

        With n times as many rows as sources, each n adjacent rows read the same source, and are folded into one row.
        """
        scheme, mask_BTS = self.cfg.position_options, source.mask_BTS
        q_BTHK = position.rotate(scheme, project(x_BTD, *projection(self, "query")), view.positions_BT)
        q_BTHK = q_BTHK.reshape(len(mask_BTS), -1, *q_BTHK.shape[2:])
        if isinstance(source.states, dict):
            k_BSHK, v_BSHK = (source.states[name].swapaxes(1, 2) for name in ("key", "value"))
        else:
            k_BSHK, v_BSHK = (project(source.states, *projection(self, name)) for name in ("key", "value"))
            k_BSHK = rotate_source(scheme, k_BSHK)
        y_BTHK, weights_BHTS = attend(q_BTHK, k_BSHK, v_BSHK, mask_BTS, **attend_options(self))
        return join(y_BTHK, *projection(self, "output")).reshape(x_BTD.shape), weights_BHTS


class Source(NamedTuple):
    """Source of cross-attention: its states, (B, S, D), or their keys and values from `project_source`."""

    mask_BTS: Array  # bool: the source tokens that are not padding
    states: Array | dict[str, Array]

    attention = CrossAttention  # the sub-layer that reads it


def project_source(params: dict[str, Array], source_BSD: Array, scheme: Any) -> dict[str, Array]:
    """Return the keys and values of a source, (B, H, S, K) each. params: those of one layer's cross-attention."""
    key, value = (project(source_BSD, params[name], params.get(f"{name}_bias")) for name in ("key", "value"))
    return {"key": rotate_source(scheme, key).swapaxes(1, 2), "value": value.swapaxes(1, 2)}


def rotate_source(scheme: Any, k_BSHK: Array) -> Array:
    """Return the keys of a source, rotated by their positions in it."""
    return position.rotate(scheme, k_BSHK, jnp.arange(k_BSHK.shape[1], dtype=jnp.int32)[None])
