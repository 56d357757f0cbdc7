"""Keys and values of the tokens read so far, in slots: position p lives in slot p mod (number of slots).

Each slot states the position of its token, -1 if it is empty. With a window, `window` slots are enough, and form a
ring. The arrays are (B, H, S, K), the order in which attention reads them, and written at an index for each head: XLA
for a CPU copies an array that is written at a single index.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from apformer.layers import Cache, config
from apformer.layers.masks import View, causal_mask, mask_padding


def place(cache: Cache, tokens_BT: Any, lengths_B: Array | None, window: int | None) -> tuple[View, Array, Cache]:
    """Return the view of tokens after a cache, the tokens with 0 for padding, and the cache's new length and position.

    `lengths_B` is the number of real tokens in each row; with None, all are real. Raises what `model.extend` raises.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    before_BS, length_B, T = cache["position"], cache["length"], tokens_BT.shape[1]
    B, slots = before_BS.shape
    if window is None and T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    tokens_BT, real_BT = mask_padding(tokens_BT, lengths_B)
    after_B = length_B + (T if lengths_B is None else lengths_B)
    rows_B1, positions_BT = jnp.arange(B)[:, None], length_B[:, None] + jnp.arange(T, dtype=jnp.int32)[None]
    written_BT = real_BT & (positions_BT >= after_B[:, None] - slots)  # only the last `slots` real tokens
    slots_BT = jnp.where(written_BT, positions_BT % slots, slots)  # JAX drops a write to a slot beyond the last
    # Without a window, or for one token, no visible key is overwritten: write, then attend to the cache alone. Else
    # attend to the old slots and the new tokens side by side.
    write_first = window is None or T == 1

    def visible(old_BS: Array, written_BS: Array, new_BT: Array) -> Array:
        return written_BS if write_first else jnp.concatenate([old_BS, new_BT], axis=1)

    def store(layer: dict[str, Array], k_BTHK: Array, v_BTHK: Array) -> tuple[Array, Array, dict[str, Array]]:
        new = {"key": k_BTHK, "value": v_BTHK}
        at = rows_B1[:, None], jnp.arange(k_BTHK.shape[2])[:, None], slots_BT[:, None]
        written = {name: layer[name].at[at].set(new[name].swapaxes(1, 2), mode="drop") for name in new}
        k_BSHK, v_BSHK = (visible(layer[x].swapaxes(1, 2), written[x].swapaxes(1, 2), new[x]) for x in new)
        return k_BSHK, v_BSHK, written

    cached_BS = before_BS.at[rows_B1, slots_BT].set(positions_BT, mode="drop")
    key_BS = visible(before_BS, cached_BS, positions_BT)
    view = View(causal_mask(positions_BT, key_BS, window), positions_BT, positions_BT, key_BS, store)
    return view, tokens_BT, {"length": after_B, "position": cached_BS}
