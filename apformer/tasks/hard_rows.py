"""Hard rows: draw many candidates, and train on those with the highest loss."""

from collections.abc import Callable
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


def hardest(batch: Batch, ordinary: int, mined: int, predict: Callable[..., jax.Array], *others: Any) -> tuple:
    """Return (batch, *others) of the rows to train on: the ordinary ones, and the hardest of the candidates after them.

    Args:
        batch: Ordinary rows, then candidates.
        ordinary: Number of ordinary rows.
        mined: Number of candidates to keep: those whose worst character has the highest loss.
        predict: (tokens_BT, *others) -> logits_BTV, with the gradient stopped at the parameters; otherwise JAX traces a
            derivative that nothing needs.
        others: Other arrays of the rows of `batch`, or None.
    """

    def worst(part: tuple) -> jax.Array:
        rows, *others = part
        return token_nats(predict(rows.tokens_BT[:, :-1], *others), rows).max(1)

    B = len(batch.tokens_BT) - ordinary
    parts = B // PART if jax.default_backend() == "cpu" and B % PART == 0 else 1
    # Each part has rows of every device over which the candidates are spread.
    candidates = jax.tree.map(
        lambda leaf: leaf[ordinary:].reshape(-1, parts, *leaf.shape[1:]).swapaxes(0, 1), (batch, *others)
    )
    nats_B = jax.lax.map(worst, candidates).T.reshape(B)
    _, hardest_B = jax.lax.top_k(nats_B, mined)
    index_B = jnp.concatenate([jnp.arange(ordinary, dtype=hardest_B.dtype), ordinary + hardest_B])
    return jax.tree.map(lambda leaf: leaf[index_B], (batch, *others))
