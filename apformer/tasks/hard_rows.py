"""Hard rows: draw many candidates, and train on those with the highest loss."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from apformer.settings import Settings
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import token_nats

VALIDATION_ROWS = 1024
TEST_KEY, VALIDATION_KEY = 1, 2  # fixed, so that rows are the same for every seed


def mined_rows(settings: Settings) -> int:
    """Return the number of mined rows of a batch."""
    return int(settings.options.hard_fraction * settings.training.batch_size)


def hardest(batch: Batch, ordinary: int, mined: int, predict: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Return the indices of the rows to train on: the ordinary ones, and the hardest of the candidates after them.

    Args:
        batch: Ordinary rows, then candidates.
        ordinary: Number of ordinary rows.
        mined: Number of candidates to keep: those whose worst character has the highest loss.
        predict: tokens_BT -> logits_BTV.
    """
    candidates = jax.tree.map(lambda leaf: leaf[ordinary:], batch)
    nats_BT = token_nats(predict(candidates.tokens_BT[:, :-1]), candidates)
    _, hardest_B = jax.lax.top_k(jax.lax.stop_gradient(nats_BT.max(1)), mined)
    return jnp.concatenate([jnp.arange(ordinary, dtype=hardest_B.dtype), ordinary + hardest_B])
