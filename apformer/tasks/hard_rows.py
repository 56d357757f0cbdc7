"""Hard rows: draw many candidates, and train on those with the highest loss."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from apformer.settings import Settings
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import token_nats

PART = 128  # rows whose activations fit into the cache of a CPU
VALIDATION_ROWS = 1024
TEST_KEY, VALIDATION_KEY = 1, 2  # fixed, so that rows are the same for every seed


def mined_rows(settings: Settings) -> int:
    """Return the number of mined rows of a batch."""
    return int(settings.options.hard_fraction * settings.training.batch_size)


def hardest(batch: Batch, ordinary: int, mined: int, predict: Callable[..., jax.Array], *others: Any) -> jax.Array:
    """Return the indices of the rows to train on: the ordinary ones, and the hardest of the candidates after them.

    Args:
        batch: Ordinary rows, then candidates.
        ordinary: Number of ordinary rows.
        mined: Number of candidates to keep: those whose worst character has the highest loss.
        predict: (tokens_BT, *others) -> logits_BTV.
        others: Other arrays of the rows of `batch`, or None.
    """
    candidates = jax.tree.map(lambda leaf: leaf[ordinary:], (batch, *others))

    def worst(rows: Batch, *others: Any) -> jax.Array:
        return token_nats(predict(rows.tokens_BT[:, :-1], *others), rows).max(1)

    nats_B = jax.lax.platform_dependent(*candidates, cpu=partial(_by_parts, worst), default=worst)
    _, hardest_B = jax.lax.top_k(jax.lax.stop_gradient(nats_B), mined)
    return jnp.concatenate([jnp.arange(ordinary, dtype=hardest_B.dtype), ordinary + hardest_B])


def _by_parts(function: Callable[..., jax.Array], *rows: Any) -> jax.Array:
    """Call a function of rows, which returns a number for each, for PART rows at a time."""
    B = len(jax.tree.leaves(rows)[0])
    if B % PART:
        return function(*rows)
    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, PART, *leaf.shape[1:]), rows)
    return jax.lax.map(lambda part: function(*part), parts).reshape(B)
