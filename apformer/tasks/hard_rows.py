"""Hard rows: many are drawn, and those with the highest loss are trained on."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from apformer.settings import Settings
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import token_nats

VALIDATION_ROWS = 1024
TEST_KEY, VALIDATION_KEY = 1, 2  # the same rows for every seed


def mined_rows(settings: Settings) -> int:
    """Return the number of rows of a batch that are mined: the hardest of their candidates."""
    return int(settings.options.hard_fraction * settings.training.batch_size)


def hardest(batch: Batch, drawn: int, mined: int, predict: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Return the numbers of the first `drawn` rows, and of those `mined` others whose worst character costs most."""
    candidates = jax.tree.map(lambda leaf: leaf[drawn:], batch)
    nats_BT = token_nats(predict(candidates.tokens_BT[:, :-1]), candidates)
    _, hardest_B = jax.lax.top_k(jax.lax.stop_gradient(nats_BT.max(1)), mined)
    return jnp.concatenate([jnp.arange(drawn, dtype=hardest_B.dtype), drawn + hardest_B])
