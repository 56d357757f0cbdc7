"""The positions that the layers of `sparse` read, by pattern, and the keys and values there."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import export

SHORT = 256  # keys of a row up to which a one-hot product is as fast as a gather, with a much faster gradient
UNKNOWN = jnp.iinfo(jnp.int32).max


class Read(NamedTuple):
    """The keys that each token of a layer reads.

    Attributes:
        slot_BTO: Position of each key in its row.
        there_BTO: Whether there is such a key; if not, it is masked.
    """

    slot_BTO: jax.Array
    there_BTO: jax.Array


def places(cfg: Any) -> int:
    """Return the number of biases of each head."""
    many = {"fixed_offsets": len(cfg.offsets), "columns": 3, "ahead": 2}[cfg.pattern]
    return many + (cfg.heading or 0)


def periods(tokens_BT: jax.Array, positions_BT: jax.Array, period_B: jax.Array, cfg: Any) -> jax.Array:
    """Return the period P known at each token, 0 before the first term has ended: (B, T) int32.

    period_B: Period known before these tokens.
    """
    place_BT = positions_BT - (cfg.heading + 1 if cfg.heading else 0)  # 0 for the first token of the first term
    ends_BT = jnp.where((tokens_BT == cfg.separator) & (place_BT >= 0), place_BT + 1, UNKNOWN)
    first_BT = jax.lax.cummin(jnp.minimum(ends_BT, jnp.where(period_B > 0, period_B, UNKNOWN)[:, None]), axis=1)
    return jnp.where(first_BT == UNKNOWN, 0, first_BT)


def reads(cfg: Any, layer: int, positions_BT: jax.Array, period_BT: jax.Array) -> Read:
    """Return the positions that each token reads in a layer, counted from 0."""
    own_BT, P_BT = jnp.zeros_like(period_BT), period_BT
    offset_if_known = lambda more, least=1: jnp.where(P_BT >= least, P_BT + more, -1)  # noqa: E731
    if cfg.pattern == "fixed_offsets":
        back = [own_BT + offset for offset in cfg.offsets]
    elif cfg.pattern == "columns":
        back = ([own_BT, offset_if_known(0), offset_if_known(1)], [own_BT, offset_if_known(-1, 2)])[layer]
    else:
        back = ([own_BT, offset_if_known(0)], [own_BT, own_BT + 1], [jnp.maximum(P_BT - 2, 0)])[layer]
    place_BTO = positions_BT[:, :, None] - jnp.stack(back, axis=-1)
    own_BTO = place_BTO == positions_BT[:, :, None]
    there_BTO = own_BTO | (place_BTO >= (cfg.heading or 0)) & (place_BTO < positions_BT[:, :, None])
    if cfg.heading and (layer == 0 or cfg.pattern != "columns"):
        heading_11O = jnp.arange(cfg.heading, dtype=jnp.int32)[None, None]
        heading_BTO = jnp.broadcast_to(heading_11O, (*positions_BT.shape, cfg.heading))
        place_BTO = jnp.concatenate([place_BTO, heading_BTO], axis=-1)
        there_BTO = jnp.concatenate([there_BTO, heading_BTO < positions_BT[:, :, None]], axis=-1)
    return Read(jnp.maximum(jnp.where(there_BTO, place_BTO, 0), 0), there_BTO)


def pick(x_BSHK: jax.Array, read: Read) -> jax.Array:
    """Gather the keys or values that each token reads: (B, T, O, H, K)."""
    (B, S), T = x_BSHK.shape[:2], read.slot_BTO.shape[1]
    if not export.is_symbolic_dim(S) and S <= SHORT and T > 1:
        at_BTOS = one_hot(read, S, x_BSHK.dtype)
        return jnp.einsum("BTOS,BSHK->BTOHK", at_BTOS, x_BSHK, precision="highest")
    return x_BSHK[jnp.arange(B)[:, None, None], read.slot_BTO]


def one_hot(read: Read, S: int, dtype: Any) -> jax.Array:
    """Return the one-hot encoding of the slots that each token reads: (B, T, O, S)."""
    return (read.slot_BTO[..., None] == jnp.arange(S, dtype=jnp.int32)[None, None, None]).astype(dtype)
