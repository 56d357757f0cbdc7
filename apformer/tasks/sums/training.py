"""Sums as a run sees them: rows to train on and to choose the best checkpoint by, and the loss.

The loss counts the digits of the sum, and no other.
"""

import jax.numpy as jnp
import numpy as np

from apformer.flags import require
from apformer.tasks import hard_rows
from apformer.tasks.hard_rows import VALIDATION_KEY, VALIDATION_ROWS, mined_rows
from apformer.tasks.sums import generator
from apformer.tokenizers.digits import VOCABULARY

NOT_COMPILED = {"options": ("test_sequences",)}  # settings that no compiled program knows


def check(settings):
    """The longest row, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    generator.check(settings.data)
    options = settings.options
    require("hard_fraction", 0 <= options.hard_fraction < 1, options, "at least 0 and less than 1")
    for flag in ("mined_per_hard", "test_sequences"):
        require(flag, 1 <= getattr(options, flag) < 2**31, options, "1 to 2147483647")
    require("vocab_size", settings.model.vocab_size == len(VOCABULARY), settings.model, f"{len(VOCABULARY)}")
    return generator.length(settings.data)


def sample(key, settings, train_rows=None):
    """The batch of a training step, candidates for its hardest rows last. Pure, settings static."""
    mined = mined_rows(settings)
    size = settings.training.batch_size - mined + settings.options.mined_per_hard * mined
    pair_B2C = generator.draw(key, settings.data, size)
    return generator.encode(pair_B2C, generator.split_of(pair_B2C) == 0)


def validation(settings, rows):
    """Pairs of the validation split, half of them with long chains of carries; the same for every seed."""
    drawn = [
        generator.held_out(VALIDATION_KEY, settings.data, VALIDATION_ROWS // 2, "validation", chains)
        for chains in (False, True)
    ]
    return generator.encode(np.concatenate(drawn))


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics) of `hard_rows.make_loss`."""
    return hard_rows.make_loss(settings, exact)


def exact(predicted_BT, batch):
    """Share of the sums that count whose every digit is right; 0 if none counts.

    predicted_BT[:, t] stands for batch.tokens_BT[:, t + 1].
    """
    asked_BT = batch.weights_BT[:, 1:] > 0
    right_B = ((predicted_BT == batch.tokens_BT[:, 1:]) | ~asked_BT).all(1)
    counts_B = asked_BT.any(1)
    return (right_B & counts_B).sum(dtype=jnp.float32) / jnp.maximum(counts_B.sum(dtype=jnp.float32), 1.0)


def example(settings, run):
    """A command for the user to try on a run."""
    return f'apformer predict {run} "{generator.render(5, 7, settings.data)}"'
