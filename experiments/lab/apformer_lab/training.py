"""Training of a task of rows: the names of the task protocol that all such tasks share.

Every training row is fresh. Half of the rows are random, and half have runs of open places (see rows.py), if the format
has such rows. A share hard_fraction of the batch is mined: the hardest of several times as many rows. Only the third
and later terms count.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from apformer import loss
from apformer.flags import require, require_whole
from apformer.settings import Settings, training_apply
from apformer.tasks.defaults import right_rows
from apformer.tasks.hard_rows import VALIDATION_KEY, VALIDATION_ROWS, hardest, mined_rows
from apformer_lab import rows
from apformer_lab.rows import Batch, Format

NOT_COMPILED = {"training": ("seed",), "options": ("test_sequences",)}


@dataclass(frozen=True)
class Options:
    """Options of the sampling of rows and of the evaluation."""

    crop_terms: int = 4
    """Number of terms of a training row."""
    hard_fraction: float = 0.4
    """Fraction of the batch that is mined: the rows whose worst characters have the highest loss."""
    mined_per_hard: int = 4
    """Candidates drawn for each mined row. The hardest of all candidates are kept."""
    test_sequences: int = 500
    """Number of held-out rows in the evaluation, of each rule, base, width and kind."""


def widths(form: Format) -> list[int]:
    """Return the widths of the terms in an evaluation."""
    return sorted({-(-form.digits // 2), form.digits, 4 * form.digits, 100}) if form.widths else [form.digits]


def kinds(form: Format) -> tuple[str, ...]:
    """Return the kinds of rows of a format: only the first three of RULES have runs of open places."""
    have_runs = all(numbers in list(rows.RULES.values())[:3] for numbers in form.numbers)
    return rows.KINDS if have_runs else rows.KINDS[:1]


def check(settings: Settings) -> int:
    """Return the number of tokens of the longest row. Raises UserError (exit USAGE) that names the flag and remedy."""
    form, options, cfg = settings.data.form, settings.options, settings.model
    require("digits", 1 <= form.digits <= rows.MOST, settings.data, f"1 to {rows.MOST}")
    for flag, least in (("mined_per_hard", 1), ("test_sequences", 1), ("crop_terms", 3)):
        require_whole(flag, options, least)
    require("hard_fraction", 0 <= options.hard_fraction < 1, options, "at least 0 and less than 1")
    require("vocab_size", cfg.vocab_size == len(form.characters), cfg, f"{len(form.characters)}")
    if settings.architecture == "sparse":
        require("separator", cfg.separator == form.space, cfg, f"{form.space}")
        head = form.head - 1 if form.headings else None
        require("heading", cfg.heading == head, cfg, f"{head}")
    return max(form.length(crop(settings), form.digits), form.length(4 - form.more, max(widths(form))))


def crop(settings: Settings) -> int:
    """Return the number of terms of a training row."""
    return 3 if settings.data.form.more else settings.options.crop_terms


def sample(key: jax.Array, settings: Settings, train_rows: Any = None) -> Batch:
    """Return the batch of a training step, with the candidates for mined rows last. Pure; settings are static."""
    mined, form = mined_rows(settings), settings.data.form
    ordinary, candidates = settings.training.batch_size - mined, settings.options.mined_per_hard * mined
    if not form.widths:
        return draw_rows(key, settings, ordinary + candidates)
    keys = jax.random.split(key)
    return concatenate(
        draw_rows(keys[0], settings, ordinary - ordinary // 2),
        draw_rows(keys[1], settings, ordinary // 2 + candidates, "runs"),
    )


def draw_rows(key: jax.Array, settings: Settings, size: int, kind: str = "random") -> Batch:
    """Draw training rows of one kind."""
    form, width_B = settings.data.form, jnp.full(size, settings.data.form.digits, jnp.int32)
    if form.widths:
        key, width_key = jax.random.split(key)
        width_B = jax.random.randint(width_key, (size,), 1, form.digits + 1)
    found = rows.draw(key, form, width_B, form.digits, crop(settings), kind)
    return rows.encode(rows.of_split(found, form, "train"), form)


def concatenate(*batches: Batch) -> Batch:
    """Concatenate the rows of several batches."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *batches)


def validation(settings: Settings, rows_: Any) -> Batch:
    """Return the rows by which the best checkpoint is chosen: equally many of each kind, the same for every seed."""
    form, key, terms = settings.data.form, jax.random.key(VALIDATION_KEY), crop(settings)
    each = VALIDATION_ROWS // len(kinds(form))
    if not form.split:
        keys = jax.random.split(key)
        return concatenate(*(draw_rows(k, settings, each, kind) for k, kind in zip(keys, kinds(form), strict=False)))
    each = max(1, each // len(form.pairs()))
    found = (rows.held_out(key, form, form.digits, each, terms, kind, "validation") for kind in kinds(form))
    return concatenate(*(rows.encode(some, form) for some in found))


def make_loss(settings: Settings) -> Any:
    """Return loss_fn(params, batch, key) -> (loss, metrics); the metrics leave out mined rows."""
    run, apply = settings.training, training_apply(settings)
    dtype, mined = jnp.dtype(run.compute_dtype), mined_rows(settings)

    def loss_fn(params: Any, batch: Batch, key: jax.Array | None) -> tuple[jax.Array, dict]:
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        ordinary = len(batch.tokens_BT)
        if key is not None and mined:
            ordinary = run.batch_size - mined
            fixed = jax.lax.stop_gradient(params)
            (batch,) = hardest(batch, ordinary, mined, partial(apply, fixed, cfg=settings.model))

        def measure(logits_BTV: jax.Array, batch: Batch) -> dict:
            logits_BTV, batch = jax.tree.map(lambda leaf: leaf[:ordinary], (logits_BTV, batch))
            nats = loss.cross_entropy(logits_BTV, batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:])
            return {"loss": nats, "exact": right_rows(logits_BTV, batch).mean(dtype=jnp.float32)}

        return loss.next_token_loss(params, batch, key, settings.model, apply=apply, measure=measure)

    return loss_fn


def example(settings: Settings, run: str) -> str:
    """Return a command for the user to try on a run."""
    form = settings.data.form
    terms = "" if form.more else " --terms 3"
    width = max(form.digits, 4) if form.widths else form.digits
    prompt = rows.sample_text(form, 2 + (not form.more), width, len(form.bases) - 1)
    return f'apformer predict {run} "{prompt}"{terms}'
