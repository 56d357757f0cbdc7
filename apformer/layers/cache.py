"""Keys and values of the tokens read so far, in slots: position p lives in slot p mod (number of slots).

Each slot states the position of its token, -1 if it is empty. With a window, `window` slots are enough, and they form a
ring. The arrays are (B, H, S, K), with the slots of a head next to each other: the products of attention read them in
this order. With another order, every new token would transpose all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Placed(NamedTuple):
    """Where new tokens go in a cache."""

    real_BT: Array  # bool: the new tokens that are no padding
    positions_BT: Array  # of the new tokens
    cached_BS: Array  # positions of the slots afterwards
    key_BS: Array  # positions of the keys that the new tokens attend to
    store: Callable[..., Any]  # see `masks.View`


def place(cache: dict[str, Any], T: int, lengths_B: Array, window: int | None) -> Placed:
    """Place T new tokens a row, `lengths_B` of them real, after those in the cache of a model; `window` of a ring."""
    positions_BS, length_B = cache["position"], cache["length"]
    B, slots = positions_BS.shape
    step_1T, rows_B1 = jnp.arange(T, dtype=jnp.int32)[None], jnp.arange(B)[:, None]
    real_BT, positions_BT = step_1T < lengths_B[:, None], length_B[:, None] + step_1T
    # Only the last `slots` real tokens are written; the others go to a slot that does not exist, and are dropped.
    written_BT = real_BT & (positions_BT >= (length_B + lengths_B)[:, None] - slots)
    slots_BT = jnp.where(written_BT, positions_BT % slots, slots)
    # One step of a ring, or a cache that holds everything, never overwrites what is still visible: write, then attend
    # to the cache alone. Else attend to the old slots and the new tokens side by side.
    write_first = window is None or T == 1

    def put(old_BHSK: Array, new_BTHK: Array) -> Array:
        return old_BHSK.at[rows_B1, :, slots_BT].set(new_BTHK, mode="drop")

    def visible(old_BS: Array, written_BS: Array, new_BT: Array) -> Array:
        return written_BS if write_first else jnp.concatenate([old_BS, new_BT], axis=1)

    def store(layer: dict[str, Array], k_BTHK: Array, v_BTHK: Array) -> Any:
        written = {"key": put(layer["key"], k_BTHK), "value": put(layer["value"], v_BTHK)}
        old, now = (jax.tree.map(lambda x_BHSK: x_BHSK.swapaxes(1, 2), leaves) for leaves in (layer, written))
        k_BSHK = visible(old["key"], now["key"], k_BTHK)
        return k_BSHK, visible(old["value"], now["value"], v_BTHK), written

    cached_BS = positions_BS.at[rows_B1, slots_BT].set(positions_BT, mode="drop")
    return Placed(real_BT, positions_BT, cached_BS, visible(positions_BS, cached_BS, positions_BT), store)
