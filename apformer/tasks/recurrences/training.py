"""Recurrences as a run sees them: rows to train on and to choose the best checkpoint by, and the loss.

The loss counts the terms that the text before them fixes, and no other.
"""

from functools import partial

import jax
import jax.numpy as jnp

from apformer.flags import require
from apformer.tasks import hard_rows
from apformer.tasks.hard_rows import TEST_KEY, VALIDATION_KEY, VALIDATION_ROWS, mined_rows
from apformer.tasks.progressions.options import check_mining
from apformer.tasks.recurrences import generator
from apformer.tokenizers.digits import VOCABULARY

NOT_COMPILED = {"options": ("test_sequences",)}  # settings that no compiled program knows

_draw = jax.jit(generator.draw, static_argnums=(1, 2, 3, 4))


def check(settings):
    """The longest row, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    generator.check(settings.data)
    check_mining(settings.options)
    require("vocab_size", settings.model.vocab_size == len(VOCABULARY), settings.model, f"{len(VOCABULARY)}")
    return generator.length(settings.data, settings.data.terms)


def cropped(settings):
    """Terms of a training row, at most."""
    return min(settings.options.crop_terms, settings.data.terms)


def sample(key, settings, train_rows=None):
    """The batch of a training step, candidates for its hardest rows last. Pure, settings static."""
    mined, cfg, terms = mined_rows(settings), settings.data, cropped(settings)
    size = settings.training.batch_size - mined + settings.options.mined_per_hard * mined
    return generator.encode(generator.draw(key, cfg, size, "train", terms), cfg, terms)


def validation(settings, rows):
    """Rows that begin with pairs of the validation split; the same for every seed."""
    cfg, terms = settings.data, cropped(settings)
    drawn = _draw(jax.random.key(VALIDATION_KEY), cfg, VALIDATION_ROWS, "validation", terms)
    return generator.encode(drawn, cfg, terms)


def test_rows(settings):
    """Rows of the evaluation: they begin with pairs of the test split."""
    size, cfg = settings.options.test_sequences, settings.data
    return jax.device_get(_draw(jax.random.key(TEST_KEY), cfg, size, "test", cfg.terms))


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics) of `hard_rows.make_loss`."""
    return hard_rows.make_loss(settings, partial(exact, cfg=settings.data))


def exact(predicted_BT, batch, cfg):
    """Share of the known terms of a batch whose every character is right; 0 if it has none.

    predicted_BT[:, t] stands for batch.tokens_BT[:, t + 1].
    """
    start = generator.length(cfg, 2)
    shape = (len(batch.tokens_BT), -1, cfg.digits + 1)
    right_BN = (predicted_BT == batch.tokens_BT[:, 1:])[:, start - 1 :].reshape(shape).all(-1)
    known_BN = (batch.weights_BT[:, start:] > 0).reshape(shape).all(-1)
    count = known_BN.sum(dtype=jnp.float32)
    return (right_BN & known_BN).sum(dtype=jnp.float32) / jnp.maximum(count, 1.0)


def example(settings, run):
    """A command for the user to try on a run."""
    cfg = settings.data
    return f'apformer predict {run} "{generator.render(0, 3, 5, generator.given_terms(cfg), cfg)}" --terms 3'
