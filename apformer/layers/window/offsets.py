"""Attention within a small window, offset by offset: on a CPU faster than the square of all queries and all keys.

    score_s(t) = q_t . k_{t + s + 1 - window} / sqrt(K)          s = 0 .. window - 1, the oldest key first

The keys at one offset from their queries are a slice of the row, so a score is K products of whole rows. The square is
one small matrix product for each row and head, and most of it is masked. A CPU spends its time on the overhead of these
products. `extend` computes attention here, for new tokens after a cache. `narrow.py` asks `serve` too, and reads
whole rows of a batch itself.
"""

from dataclasses import replace
from functools import reduce

import jax.numpy as jnp
from jax import export

from apformer.layers import at_least_float32, position
from apformer.layers.cache import find

MOST = 16  # keys of a window, and numbers of a key: a program has an operation for each pair of them


def serve(cfg, T):
    """Whether a model of this Config reads T new tokens in this way: where scores depend on offsets alone.

    One new token has one row of keys, which is no square: there is nothing to save.
    """
    if cfg.window is None or export.is_symbolic_dim(T) or T == 1 or max(cfg.window, cfg.d_model // cfg.n_heads) > MOST:
        return False
    return position.knows_by_bias_alone(cfg.position_options) and cfg.similarity == "scaled_dot"


def cut(view, real_BT, cache, window):
    """The view of T new tokens whose keys stand in order: the last window - 1 of the cache, then their own.

    mask_BTS says which of its `window` keys a token has. Biases are those of one query, the last, and all its keys.
    cache: that of a model, before these tokens. real_BT: which of them are tokens.
    """
    (B, T), write = real_BT.shape, view.write
    rows_B1, step_1W = jnp.arange(B)[:, None], jnp.arange(window, dtype=jnp.int32)[None]
    before_BP = cache["length"][:, None] + step_1W[:, 1:] - window
    slot_BP, there_BP = find(cache["position"], before_BP)
    exists_BS = jnp.concatenate([there_BP, real_BT], axis=1)

    def in_order(x_BHSK, x_BTHK):
        return jnp.concatenate([x_BHSK[rows_B1, :, slot_BP], x_BTHK], axis=1)

    def write_and_order(layer, k_BTHK, v_BTHK):
        _, _, written = write(layer, k_BTHK, v_BTHK)
        return in_order(layer["key"], k_BTHK), in_order(layer["value"], v_BTHK), written

    mask_BTS = jnp.stack([exists_BS[:, s : s + T] for s in range(window)], axis=-1)
    seen = {"mask_BTS": mask_BTS, "positions_BT": step_1W[:, -1:], "positions_BS": step_1W}
    return replace(view, write=write_and_order, by_offset=True, **seen)


def attend(q_BTHK, k_BSHK, v_BSHK, mask_BTS, bias_BHTS=None, sink_H=None):
    """Weighted mean of the values, of keys in a view as above: (B, T, H, K), as attention.attend gives for the square.

    bias_BHTS: of one query, (1, H, 1, window).
    """
    T, K, window = q_BTHK.shape[1], q_BTHK.shape[-1], mask_BTS.shape[-1]
    dtype = at_least_float32(q_BTHK.dtype)

    q_BKTH, k_BKSH = (jnp.moveaxis(x_BTHK, -1, 1) for x_BTHK in (q_BTHK, k_BSHK))

    def score(s):
        products = (q_BKTH[:, k] * k_BKSH[:, k, s : s + T] for k in range(K))
        score_BTH = sum(products).astype(dtype) * jnp.asarray(K**-0.5, dtype)
        score_BTH = score_BTH if bias_BHTS is None else score_BTH + bias_BHTS[:, None, :, 0, s].astype(dtype)
        return jnp.where(mask_BTS[:, :, None, s], score_BTH, jnp.finfo(dtype).min)

    scores = [score(s) for s in range(window)]
    sinks = [] if sink_H is None else [sink_H[None, None].astype(dtype)]
    largest_BTH = reduce(jnp.maximum, scores + sinks)
    shares = [jnp.exp(score_BTH - largest_BTH) for score_BTH in scores + sinks]
    sums_BTHK = sum(shares[s][..., None] * v_BSHK[:, s : s + T].astype(dtype) for s in range(window))
    return (sums_BTHK / sum(shares)[..., None]).astype(v_BSHK.dtype)
