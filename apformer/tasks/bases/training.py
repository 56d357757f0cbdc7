"""Rows in many bases as a run sees them: rows to train on and to choose by, and the loss.

Every training row is fresh: half as they come, half with carries that run far. A share hard_fraction of the batch is
mined: the hardest of several times as many rows with such carries. Only the third and later terms count.
"""

from functools import partial

import jax
import jax.numpy as jnp

from apformer.flags import require
from apformer.tasks import hard_rows
from apformer.tasks.bases import evaluation, generator
from apformer.tasks.bases.alphabet import CHARACTERS, HEADING, SPACE
from apformer.tasks.digits.training import exact
from apformer.tasks.hard_rows import VALIDATION_KEY, VALIDATION_ROWS, mined_rows
from apformer.tasks.progressions.options import check_mining

NOT_COMPILED = {"options": ("test_sequences",)}  # settings that no compiled program knows


def check(settings):
    """The longest row, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    generator.check(settings.data)
    check_mining(settings.options)
    require("vocab_size", settings.model.vocab_size == len(CHARACTERS), settings.model, f"{len(CHARACTERS)}")
    scheme = settings.model.position_options
    if settings.model.position == "columns":
        require("separator", scheme.separator == SPACE, scheme, f"{SPACE}")
        require("heading", scheme.heading == HEADING, scheme, f"{HEADING}")
    trained = generator.length(settings.options.crop_terms, settings.data.digits)
    return max(trained, generator.length(evaluation.TERMS, max(evaluation.widths(settings.data))))


def sample(key, settings, train_rows=None):
    """The batch of a training step, candidates for its hardest rows last. Pure, settings static."""
    mined, keys = mined_rows(settings), jax.random.split(key)
    drawn = settings.training.batch_size - mined
    hard = drawn // 2 + settings.options.mined_per_hard * mined
    return _joined(_draw(keys[0], settings, drawn - drawn // 2, False), _draw(keys[1], settings, hard, True))


def _draw(key, settings, size, hard):
    cfg, (width_key, row_key) = settings.data, jax.random.split(key)
    width_B = jax.random.randint(width_key, (size,), 1, cfg.digits + 1)
    terms = settings.options.crop_terms
    return generator.encode(generator.draw(row_key, cfg, width_B, cfg.digits, terms, hard=hard), cfg)


def _joined(*batches):
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *batches)


def validation(settings, rows):
    """Rows by which the best checkpoint is chosen, half of them hard; the same for every seed."""
    keys, half = jax.random.split(jax.random.key(VALIDATION_KEY)), VALIDATION_ROWS // 2
    return _joined(*(_draw(key, settings, half, hard) for key, hard in zip(keys, (False, True), strict=True)))


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics) of `hard_rows.make_loss`."""
    return hard_rows.make_loss(settings, partial(exact, terms=settings.options.crop_terms))


def example(settings, run):
    """A command for the user to try on a run."""
    cfg = settings.data
    prompt = generator.render(cfg.rules[0], cfg.bases[-1], (3, 5), max(4, cfg.digits))
    return f'apformer predict {run} "{prompt}" --terms 3'
