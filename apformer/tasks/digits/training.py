"""Progressions of many widths as a run sees them: rows to train on and to choose by, and the loss.

Every training row is fresh: half as they come, half with carries that run far: a run of zeros or nines, or, most
significant digit first, of any places whose carry is open. A share hard_fraction of the batch is mined: the hardest of
several times as many rows with such a run. Only the third and later terms count. With --dataset all rows are of a
file (dataset.py).
"""

from functools import partial

import jax
import jax.numpy as jnp

from apformer.flags import require
from apformer.tasks import hard_rows
from apformer.tasks.digits import dataset, evaluation, generator
from apformer.tasks.hard_rows import VALIDATION_KEY, VALIDATION_ROWS, mined_rows
from apformer.tasks.progressions.options import check_mining
from apformer.tokenizers.digits import VOCABULARY

NOT_COMPILED = {"options": ("dataset", "test_sequences")}  # settings that no compiled program knows


def check(settings):
    """The longest row, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    generator.check(settings.data)
    check_mining(settings.options)
    require("vocab_size", settings.model.vocab_size == len(VOCABULARY), settings.model, f"{len(VOCABULARY)}")
    scheme = settings.model.position_options
    if settings.model.position in ("periodic", "ahead"):
        require("separator", scheme.separator == VOCABULARY[" "], scheme, f"{VOCABULARY[' ']}")
    trained = settings.options.crop_terms * (settings.data.digits + 1) - 1
    return max(trained, evaluation.TERMS * (max(evaluation.widths(settings.data)) + 1) - 1)


def sample(key, settings, train_rows=None):
    """The batch of a training step, candidates for its hardest rows last. Pure, settings static."""
    run = settings.training
    hard = mined_rows(settings)
    drawn, keys = run.batch_size - hard, jax.random.split(key, 3)
    if train_rows is not None:
        return dataset.draw(key, train_rows, drawn + settings.options.mined_per_hard * hard)
    parts = [_draw(keys[0], settings, drawn - drawn // 2, False), _draw(keys[1], settings, drawn // 2, True)]
    if hard:
        parts.append(_draw(keys[2], settings, settings.options.mined_per_hard * hard, True))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _draw(key, settings, size, hard):
    cfg, (width_key, row_key) = settings.data, jax.random.split(key)
    width_B = jax.random.randint(width_key, (size,), 1, cfg.digits + 1)
    terms = settings.options.crop_terms
    if hard and cfg.order == "msb":
        return generator.encode(generator.chains(row_key, width_B, cfg.digits, terms), cfg.order)
    return generator.encode(generator.draw(row_key, width_B, cfg.digits, terms, hard), cfg.order)


def validation(settings, rows):
    """Rows by which the best checkpoint is chosen, half with runs, the same for every seed; or those of a file."""
    if rows is not None:
        return jax.tree.map(lambda leaf: leaf[:VALIDATION_ROWS], rows)
    key, other_key = jax.random.split(jax.random.key(VALIDATION_KEY))
    half = VALIDATION_ROWS // 2
    parts = _draw(key, settings, half, False), _draw(other_key, settings, half, True)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics) of `hard_rows.make_loss`."""
    return hard_rows.make_loss(settings, partial(exact, terms=settings.options.crop_terms))


def exact(predicted_BT, batch, terms):
    """Share of the predictable terms of a batch whose every character is right; 0 if it has none.

    predicted_BT[:, t] stands for batch.tokens_BT[:, t + 1].
    """
    tokens_BT, weights_BT, term_BT = (leaf[:, 1:] for leaf in batch)
    of_BTN = (term_BT[:, :, None] == jnp.arange(terms, dtype=jnp.int32)[None, None]) & (weights_BT > 0)[:, :, None]
    wrong_BN = (of_BTN & (predicted_BT != tokens_BT)[:, :, None]).any(1)
    count = of_BTN.any(1).sum(dtype=jnp.float32)
    return 1.0 - wrong_BN.sum(dtype=jnp.float32) / jnp.maximum(count, 1.0)


def example(settings, run):
    """A command for the user to try on a run, in the order of the model."""
    cfg = settings.data
    width = min(cfg.digits, 4)
    prompt = generator.render([7 + 3 * k for k in range(3)] if width > 1 else (0, 3, 6), width, cfg.order)
    return f'apformer predict {run} "{prompt}" --terms 3'
