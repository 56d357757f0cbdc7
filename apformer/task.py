"""The home task as a run sees it: rows to train on, to choose the best checkpoint by, and to be examined on.

Rows come from the generator, or from a text file. `rows` is None in the one case, {split: Progressions} in the other.
"""

import hashlib
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp

from apformer import loss, model
from apformer.data import progression_file, progressions
from apformer.errors import DATA, USAGE, UserError
from apformer.evaluate import term_matches

VALIDATION_ROWS = 1024
TEST_KEY, VALIDATION_KEY = 1, 2  # the same rows for every seed

_draw = jax.jit(progressions.draw, static_argnums=(1, 2, 3))


def read_rows(settings):
    """{split: Progressions} of the dataset file, or None where fresh rows are drawn. Raises UserError."""
    name, digits = settings.training.dataset, settings.data.digits
    if name is None:
        for split in progressions.SPLITS:
            if not progressions.has_split(settings.data, split):
                raise UserError(
                    f"these differences have no {split} lines: give a wider range that goes beyond 10", USAGE
                )
        return None
    rows, found = progression_file.read(name)
    if found != digits:
        raise UserError(f"{name} has terms of {found} digits where --digits is {digits}: give --digits {found}", DATA)
    longest = int(rows.terms_B.max()) * (digits + 1) - 1
    if settings.model.position == "learned" and settings.model.max_len < longest:
        raise UserError(f"{name} has rows of {longest} characters: give --max_len {longest} or more", USAGE)
    split_B = progressions.split_of(rows.difference_B, rows.first_B)
    splits = {
        split: progressions.Progressions(*(leaf[split_B == i] for leaf in rows))
        for i, split in enumerate(progressions.SPLITS)
    }
    for split, part in splits.items():
        if not len(part.first_B):
            raise UserError(f"{name} has no {split} rows: give more rows, with differences of 10 and more", DATA)
    return splits


def describe_rows(settings, rows):
    """What config.json says of the data: counts and a hash, by which a resumed run knows it again."""
    if rows is None:
        return {"source": "sampler"}
    counts = {split: len(part.first_B) for split, part in rows.items()}
    digest = hashlib.sha256(Path(settings.training.dataset).read_bytes()).hexdigest()
    return {"source": settings.training.dataset, "rows": counts, "sha256": digest}


def sample(key, settings, train_rows=None):
    """A Batch of training rows: fresh ones, or drawn with replacement from those of a file. Pure, settings static."""
    row_key, crop_key = jax.random.split(key)
    size, terms = settings.training.batch_size, min(settings.training.crop_terms, settings.data.max_terms)
    if train_rows is None:
        drawn = progressions.draw(row_key, settings.data, size, "train")
    else:
        index_B = jax.random.randint(row_key, (size,), 0, len(train_rows.first_B))
        drawn = progressions.Progressions(*(leaf[index_B] for leaf in train_rows))
    return progressions.crop(crop_key, drawn, settings.data.digits, terms, settings.training.middle_share)


def validation_batch(settings, rows):
    """Held-out rows by which the best checkpoint is chosen: the beginnings of validation progressions."""
    if rows is None:
        drawn = _draw(jax.random.key(VALIDATION_KEY), settings.data, VALIDATION_ROWS, "validation")
    else:
        drawn = progressions.Progressions(*(leaf[:VALIDATION_ROWS] for leaf in rows["validation"]))
    terms = min(settings.training.crop_terms, settings.data.max_terms)
    return progressions.encode_rows(drawn, settings.data.digits, terms)


def test_rows(settings, rows):
    """The test progressions of the evaluation, as numpy arrays."""
    count = settings.training.test_sequences
    if rows is not None:
        return progressions.Progressions(*(leaf[:count] for leaf in rows["test"]))
    return jax.device_get(_draw(jax.random.key(TEST_KEY), settings.data, count, "test"))


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics) of the run's model."""
    dtype = jnp.dtype(settings.training.compute_dtype)
    measure = partial(term_matches, digits=settings.data.digits)

    def loss_fn(params, batch, key):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        key = key if settings.model.dropout else None
        return loss.next_token_loss(params, batch, key, settings.model, apply=model.apply, measure=measure)

    return loss_fn


def hint(cfg):
    """A prompt for the user to try: 007 010 013, or the nearest to it that the generator could draw."""
    difference = sorted((cfg.min_difference, 3, cfg.max_difference))[1]
    top = 10**cfg.digits - 1
    terms = min(3, 1 + top // max(abs(difference), 1))
    first = top - 7 if difference < 0 else 7
    if not 0 <= first + (terms - 1) * difference <= top:
        first = top if difference < 0 else 0
    return progressions.render(first, difference, terms, cfg.digits)
