"""The home task as a run sees it: rows to train on, to choose the best checkpoint by, and to be examined on.

Rows come from the generator, or from a text file. `rows` is None in the one case, {split: Progressions} in the other.
"""

import hashlib
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss, recipes
from apformer.data import bayes, progression_file, progressions, stretches
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
    if getattr(settings.model, "position", None) == "learned" and settings.model.max_len < longest:
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
    """The batch of a training step: stretches of rows, some from where carries run far. Pure, settings static."""
    run, cfg = settings.training, settings.data
    terms = min(run.crop_terms, cfg.max_terms)
    row_key, crop_key, round_key = jax.random.split(key, 3)
    near = 0 if train_rows is not None else int(run.round_share * run.batch_size)
    drawn = _draw_rows(row_key, settings, train_rows, run.batch_size - near)
    batch = stretches.crop(crop_key, drawn, cfg.digits, terms, run.middle_share)
    if not near:
        return batch
    hard = stretches.near_round(round_key, cfg, near, terms)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), batch, hard)


def _draw_rows(key, settings, train_rows, size):
    """Fresh training rows, or rows of a file drawn with replacement."""
    if train_rows is None:
        return progressions.draw(key, settings.data, size, "train")
    index_B = jax.random.randint(key, (size,), 0, len(train_rows.first_B))
    return progressions.Progressions(*(leaf[index_B] for leaf in train_rows))


def validation_batch(settings, rows):
    """Held-out rows by which the best checkpoint is chosen: the beginnings of validation progressions."""
    terms = min(settings.training.crop_terms, settings.data.max_terms)
    return progressions.encode_rows(_validation_rows(settings, rows), settings.data.digits, terms)


def validation_floor(settings):
    """The Bayes predictor's loss on the validation batch of drawn rows, in nats per character.

    A row's beginning costs it what the whole row does, since only the first two terms cost anything.
    """
    nats = bayes.bayes_nats(_validation_rows(settings, None), settings.data).sum()
    return float(nats / np.sum(validation_batch(settings, None).weights_BT))


def _validation_rows(settings, rows):
    if rows is None:
        return jax.device_get(_draw(jax.random.key(VALIDATION_KEY), settings.data, VALIDATION_ROWS, "validation"))
    return progressions.Progressions(*(leaf[:VALIDATION_ROWS] for leaf in rows["validation"]))


def test_rows(settings, rows, split="test"):
    """The progressions of the evaluation, as numpy arrays; of a file, those of any split."""
    count = settings.training.test_sequences
    if rows is not None:
        return progressions.Progressions(*(leaf[:count] for leaf in rows[split]))
    return jax.device_get(_draw(jax.random.key(TEST_KEY), settings.data, count, "test"))


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics); without a key there is nothing random in it."""
    run, architecture = settings.training, recipes.module(settings.model)
    dtype = jnp.dtype(run.compute_dtype)
    measure = partial(term_matches, digits=settings.data.digits)

    def apply(params, tokens_BT, cfg, *, key=None):
        if key is None:
            return architecture.apply(params, tokens_BT, cfg)
        options, (dropout_key, offset_key) = {}, jax.random.split(key)
        if run.position_offset:
            offset_B1 = jax.random.randint(offset_key, (len(tokens_BT), 1), 0, run.position_offset + 1)
            options["positions_BT"] = offset_B1 + jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None]
        return architecture.apply(params, tokens_BT, cfg, key=dropout_key if cfg.dropout else None, **options)

    def loss_fn(params, batch, key):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        return loss.next_token_loss(params, batch, key, settings.model, apply=apply, measure=measure)

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
