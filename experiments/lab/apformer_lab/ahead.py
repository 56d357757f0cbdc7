"""An attention head that looks ahead: it returns one bit of the first key that decides, from a given position on.

With the most significant digit first, a digit depends on carries from lower places, which come later in the text of the
two terms before. A term and its space take P tokens. The last of three layers reads, P - 2 tokens back, the state that
the first two layers computed for one place. Its last head has no query. It looks at the keys from P - 3 tokens back to
the token itself, and reads two numbers of each, the first coordinates of the key and of the value:

    stop_logit_s > 0    the key decides, unless an older key does
    bit_logit_s > 0     the bit of the key

The output of the head is the bit of the key that decides, +1 or -1, or 0 if no key decides. So in terms of any width,
the logits after a token depend on two things: one of these three numbers, and four tokens.

In training both numbers act softly: geometric attention (Csordas et al. 2022) with sigmoid(stop_logit) for a key's
share, and tanh(bit_logit / 2). Noise on both teaches them to keep away from 0. Otherwise they act hard, as above.
"""

import jax
import jax.numpy as jnp

NEVER = jnp.iinfo(jnp.int32).max  # a position after all others


def look(
    y_BTHK: jax.Array,
    k_BSHK: jax.Array,
    v_BSHK: jax.Array,
    *,
    from_BT: jax.Array,
    positions_BT: jax.Array,
    key: jax.Array | None,
    noise: float,
) -> jax.Array:
    """Return y_BTHK with the output of the last head replaced by the bit that it finds.

    Args:
        y_BTHK: Weighted sums of the heads.
        k_BSHK: Keys of the row, that of position s in slot s.
        v_BSHK: Values of the row.
        from_BT: Position of the first key of each token.
        positions_BT: Position of each token.
        key: Random key in training, else None.
        noise: Standard deviation of the noise on both numbers of a key, in training.
    """
    stop_logit_BS, bit_logit_BS = k_BSHK[:, :, -1, 0], v_BSHK[:, :, -1, 0]
    if key is None:
        bit_BT = _hard(stop_logit_BS, bit_logit_BS, from_BT, positions_BT)
    else:
        noise_2BS = noise * jax.random.normal(key, (2, *stop_logit_BS.shape), stop_logit_BS.dtype)
        place_11S = jnp.arange(stop_logit_BS.shape[1], dtype=jnp.int32)[None, None]
        seen_BTS = (from_BT[:, :, None] <= place_11S) & (place_11S <= positions_BT[:, :, None])
        share_BTS = geometric((stop_logit_BS + noise_2BS[0])[:, None], seen_BTS)
        bit_BT = jnp.einsum("BTS,BS->BT", share_BTS, jnp.tanh((bit_logit_BS + noise_2BS[1]) / 2))
    return y_BTHK.at[:, :, -1].set(0.0).at[:, :, -1, 0].set(bit_BT.astype(y_BTHK.dtype))


def geometric(scores_B1S: jax.Array, seen_BTS: jax.Array) -> jax.Array:
    """Return geometric attention weights: each key takes the share sigmoid(score) of what the keys before it left."""
    log_rest_BTS = jnp.where(seen_BTS, jax.nn.log_sigmoid(-scores_B1S), 0.0)
    left_BTS = jnp.cumsum(jnp.pad(log_rest_BTS[..., :-1], ((0, 0), (0, 0), (1, 0))), axis=-1)
    return jnp.where(seen_BTS, jnp.exp(left_BTS + jax.nn.log_sigmoid(scores_B1S)), 0.0)


def _hard(stop_logit_BS: jax.Array, bit_logit_BS: jax.Array, from_BT: jax.Array, positions_BT: jax.Array) -> jax.Array:
    """Return the bit of the first key that decides from a position on, 0 if there is none: (B, T), in time O(S + T).

    next_s = s if stop_logit_s > 0 else next_{s+1}        first_t = next_{from_t}
    """
    S = stop_logit_BS.shape[1]
    at_BS = jnp.where(stop_logit_BS > 0, jnp.arange(S, dtype=jnp.int32)[None], NEVER)
    if from_BT.shape[1] == 1:  # in generation a minimum is enough, and takes less than half the time
        first_BT = jnp.where(at_BS >= from_BT, at_BS, NEVER).min(1, keepdims=True)
    else:
        next_BS = jax.lax.cummin(at_BS, axis=1, reverse=True)
        first_BT = jnp.take_along_axis(next_BS, jnp.clip(from_BT, 0, S - 1), axis=1)
    bit_logit_BT = jnp.take_along_axis(bit_logit_BS, jnp.clip(first_BT, 0, S - 1), axis=1)
    within_BT = (from_BT <= first_BT) & (first_BT <= positions_BT)
    return jnp.where(within_BT, jnp.where(bit_logit_BT > 0, 1.0, -1.0), 0.0)
