"""Rows in many bases as a run sees them: rows to train on and to choose by, and the loss.

Every training row is fresh. A share hard_fraction of the batch is mined: the hardest of several times as many rows.
Only the third and later terms count.
"""

from functools import partial

import jax

from apformer.flags import require
from apformer.tasks import hard_rows
from apformer.tasks.bases import generator
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
    return generator.length(settings.options.crop_terms, settings.data.digits)


def sample(key, settings, train_rows=None):
    """The batch of a training step, candidates for its hardest rows last. Pure, settings static."""
    mined = mined_rows(settings)
    return _draw(key, settings, settings.training.batch_size - mined + settings.options.mined_per_hard * mined)


def _draw(key, settings, size):
    cfg, (width_key, row_key) = settings.data, jax.random.split(key)
    width_B = jax.random.randint(width_key, (size,), 1, cfg.digits + 1)
    return generator.encode(generator.draw(row_key, cfg, width_B, cfg.digits, settings.options.crop_terms), cfg)


def validation(settings, rows):
    """Rows by which the best checkpoint is chosen; the same for every seed."""
    return _draw(jax.random.key(VALIDATION_KEY), settings, VALIDATION_ROWS)


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics) of `hard_rows.make_loss`."""
    return hard_rows.make_loss(settings, partial(exact, terms=settings.options.crop_terms))


def example(settings, run):
    """A command for the user to try on a run."""
    cfg = settings.data
    prompt = generator.render(cfg.rules[0], cfg.bases[-1], (3, 5), max(4, cfg.digits))
    return f'apformer predict {run} "{prompt}" --terms 3'
