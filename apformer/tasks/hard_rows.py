"""Hard rows: many are drawn, and those with the highest loss are kept."""

from functools import partial

import jax
import jax.numpy as jnp

from apformer import loss
from apformer.settings import training_apply

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


def make_loss(settings, exact):
    """loss_fn(params, batch, key) -> (loss, metrics); the metrics are of the rows before the mined ones.

    exact(predicted_BT, batch): the share of terms whose every character is right; predicted_BT[:, t] stands for
    batch.tokens_BT[:, t + 1].
    """
    run, apply = settings.training, training_apply(settings)
    dtype, mined = jnp.dtype(run.compute_dtype), mined_rows(settings)

    def loss_fn(params, batch, key):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        drawn = len(batch.tokens_BT)
        if key is not None and mined:
            drawn = run.batch_size - mined
            batch = keep_hardest(batch, drawn, mined, partial(apply, params, cfg=settings.model))

        def measure(logits_BTV, batch):
            logits_BTV, batch = jax.tree.map(lambda leaf: leaf[:drawn], (logits_BTV, batch))
            nats = loss.cross_entropy(logits_BTV, batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:])
            return {"loss": nats, "exact": exact(logits_BTV.argmax(-1), batch)}

        return loss.next_token_loss(params, batch, key, settings.model, apply=apply, measure=measure)

    return loss_fn
