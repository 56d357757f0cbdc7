"""Keys and values of the tokens read so far, in slots: position p lives in slot p mod (number of slots).

Each slot states the position of its token, -1 if it is empty. With a window, `window` slots are enough, and they form a
ring. The arrays are (B, H, S, K), with the slots of a head next to each other: the products of attention read them in
this order. With another order, every new token would transpose all of them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers import attention, config
from apformer.layers.masks import View, causal_mask


def place(
    cache: dict[str, Any], tokens_BT: Array, lengths_B: Array | None, window: int | None
) -> tuple[View, Array, dict[str, Array]]:
    """Return the view of new tokens after those in a cache, which of them are real, (B, T), and the cache's new places.

    `lengths_B` is the number of real ones in each row, all of them with None.

    Raises:
        ValueError: For tokens that are no rows, and without a window for more of them than the cache has slots.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    before_BS, length_B, T = cache["position"], cache["length"], tokens_BT.shape[1]
    B, slots = before_BS.shape
    if window is None and T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    lengths_B = jnp.full(B, T, jnp.int32) if lengths_B is None else lengths_B
    step_1T, rows_B1 = jnp.arange(T, dtype=jnp.int32)[None], jnp.arange(B)[:, None]
    real_BT, positions_BT = step_1T < lengths_B[:, None], length_B[:, None] + step_1T
    # Only the last `slots` real tokens are written; the others go to a slot that does not exist, and are dropped.
    written_BT = real_BT & (positions_BT >= (length_B + lengths_B)[:, None] - slots)
    slots_BT = jnp.where(written_BT, positions_BT % slots, slots)
    # One step of a ring, or a cache that holds everything, never overwrites what is still visible: write, then attend
    # to the cache alone. Else attend to the old slots and the new tokens side by side.
    write_first = window is None or T == 1

    def visible(old_BS: Array, written_BS: Array, new_BT: Array) -> Array:
        return written_BS if write_first else jnp.concatenate([old_BS, new_BT], axis=1)

    def store(layer: dict[str, Array], *new: Array) -> Any:
        new = dict(zip(("key", "value"), new, strict=True))
        put = lambda name: layer[name].at[rows_B1, :, slots_BT].set(new[name], mode="drop")  # noqa: E731
        written = {name: put(name) for name in new}
        old, now = (jax.tree.map(lambda x_BHSK: x_BHSK.swapaxes(1, 2), leaves) for leaves in (layer, written))
        return *(visible(old[name], now[name], new[name]) for name in new), written

    cached_BS = before_BS.at[rows_B1, slots_BT].set(positions_BT, mode="drop")
    key_BS = visible(before_BS, cached_BS, positions_BT)
    mask_BTS = causal_mask(positions_BT, key_BS, window)
    view = View(mask_BTS, positions_BT, positions_BT, key_BS, attention, store)
    return view, real_BT, {"length": length_B + lengths_B, "position": cached_BS}
