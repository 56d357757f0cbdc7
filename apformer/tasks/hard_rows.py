"""Hard rows: many are drawn, and those with the highest loss are kept."""

import jax
import jax.numpy as jnp

from apformer import loss

VALIDATION_ROWS = 1024
TEST_KEY, VALIDATION_KEY = 1, 2  # the same rows for every seed


def mined_rows(settings):
    """How many rows of a batch are mined: the hardest of their candidates."""
    return int(settings.options.hard_fraction * settings.training.batch_size)


def keep_hardest(batch, drawn, mined, predict):
    """The first `drawn` rows, and those `mined` of the others whose worst character costs most."""
    candidates = jax.tree.map(lambda leaf: leaf[drawn:], batch)
    tokens_BT, weights_BT = candidates.tokens_BT, candidates.weights_BT[:, 1:]
    nats_BT = loss.token_nats(predict(tokens_BT[:, :-1]), tokens_BT[:, 1:])
    worst_B = jax.lax.stop_gradient(jnp.where(weights_BT > 0, nats_BT, 0.0).max(1))
    _, kept_B = jax.lax.top_k(worst_B, mined)
    return jax.tree.map(lambda leaf, other: jnp.concatenate([leaf[:drawn], other[kept_B]]), batch, candidates)
