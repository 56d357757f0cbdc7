"""Keys and values of the tokens read so far, in slots: position p lives in slot p mod (number of slots).

Each slot states the position of its token, -1 if it is empty. With a window, `window` slots are enough, and they form a
ring. Where queries see keys at a few offsets alone, there are slots for the farthest offset and the new tokens. The
arrays are BHSK, with the slots of a head next to each other. The products of attention read them in this order. With
another order, every new token would transpose all of them.
"""

import jax
import jax.numpy as jnp


def place(cache, T, lengths_B, window):
    """Where T new tokens a row go, of which lengths_B are real, after those in the cache of a model.

    window: that of a ring of slots, else None. Returns

    - real_BT, positions_BT: those of the new tokens;
    - cached_BS: the positions of the cache afterwards;
    - positions_BS: those of the keys that new tokens attend to;
    - write(layer, k_BTHK, v_BTHK) -> (k_BSHK, v_BSHK, layer): for what the cache has of a layer.
    """
    positions_BS, length_B = cache["position"], cache["length"]
    B, slots = positions_BS.shape
    step_1T, rows_B1 = jnp.arange(T, dtype=jnp.int32)[None], jnp.arange(B)[:, None]
    real_BT, positions_BT = step_1T < lengths_B[:, None], length_B[:, None] + step_1T
    # Only the last `slots` real tokens are written; the others go to a slot that does not exist, and are dropped.
    kept_BT = real_BT & (positions_BT >= (length_B + lengths_B)[:, None] - slots)
    slots_BT = jnp.where(kept_BT, positions_BT % slots, slots)
    # One step of a ring, or a cache that holds everything, never overwrites what is still visible: write, then attend
    # to the cache alone. Else attend to the old slots and the new tokens side by side.
    write_first = window is None or T == 1

    def put(old_BHSK, new_BTHK):
        return old_BHSK.at[rows_B1, :, slots_BT].set(new_BTHK, mode="drop")

    def visible(old_BS, written_BS, new_BT):
        return written_BS if write_first else jnp.concatenate([old_BS, new_BT], axis=1)

    def write(layer, k_BTHK, v_BTHK):
        written = {"key": put(layer["key"], k_BTHK), "value": put(layer["value"], v_BTHK)}
        old, now = (jax.tree.map(lambda x_BHSK: x_BHSK.swapaxes(1, 2), leaves) for leaves in (layer, written))
        k_BSHK = visible(old["key"], now["key"], k_BTHK)
        return k_BSHK, visible(old["value"], now["value"], v_BTHK), written

    cached_BS = positions_BS.at[rows_B1, slots_BT].set(positions_BT, mode="drop")
    return real_BT, positions_BT, cached_BS, visible(positions_BS, cached_BS, positions_BT), write


def gather(write, cached_BS, positions_BT, offset_BTO):
    """Of `place`, for tokens that see the keys at a few offsets alone: (positions_BS, write).

    Each token is then a row of its own, of one query and O keys, and (B, T, ...) has the shape (B T, 1, ...). Keys that
    are not in the cache have the position -1. offset_BTO: -1 for none.
    """
    B, T, each = offset_BTO.shape
    rows_B11, wanted_BTO = jnp.arange(B)[:, None, None], positions_BT[:, :, None] - offset_BTO
    found = find(cached_BS, wanted_BTO.reshape(B, T * each))
    slot_BTO, there_BTO = (x_BN.reshape(B, T, each) for x_BN in found)
    there_BTO &= offset_BTO >= 0

    def gathered(x_BHSK):
        return x_BHSK[rows_B11, :, slot_BTO].reshape(B * T, each, *x_BHSK.shape[1::2])

    def write_and_gather(layer, *new):
        _, _, written = write(layer, *(x_BTHK.reshape(B, T, *x_BTHK.shape[2:]) for x_BTHK in new))
        return gathered(written["key"]), gathered(written["value"]), written

    return jnp.where(there_BTO, wanted_BTO, -1).reshape(B * T, each), write_and_gather


def find(cached_BS, wanted_BN):
    """(slots_BN of the tokens at these positions, there_BN: whether the cache has them), never below position 0."""
    slots_BN = wanted_BN % cached_BS.shape[1]
    return slots_BN, (wanted_BN >= 0) & (jnp.take_along_axis(cached_BS, slots_BN, axis=1) == wanted_BN)
