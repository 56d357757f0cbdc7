"""Training of the home task: training and validation rows, and the loss."""

import hashlib
import inspect
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss
from apformer.errors import DATA, UserError
from apformer.files import read_bytes
from apformer.flags import require
from apformer.settings import Settings, architecture_of, training_apply
from apformer.tasks import Loss, LossAndMetrics
from apformer.tasks.batch import Batch
from apformer.tasks.defaults import cast_params
from apformer.tasks.hard_rows import TEST_KEY, VALIDATION_KEY, VALIDATION_ROWS, hardest, mined_rows
from apformer.tasks.progressions import bayes, crops, first_two_terms, generator, options, text_file
from apformer.tasks.progressions.generator import Progressions
from apformer.tokenizers.digits import VOCABULARY

PREFIX_WEIGHT = 4.0  # weight of the loss of rows of two terms; the loss of the other rows has weight 1

NOT_COMPILED = {  # settings that no compiled program depends on
    "training": ("seed",),
    "options": ("dataset", "test_sequences"),
}

_draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))


def check(settings: Settings) -> int:
    """Return the longest row in tokens. Raises UserError (exit USAGE) for a flag that is out of range."""
    generator.check(settings.data)
    options.check(settings.options)
    cfg, takes = settings.data, inspect.signature(architecture_of(settings).apply).parameters
    require("vocab_size", settings.model.vocab_size == len(VOCABULARY), settings.model, f"{len(VOCABULARY)}")
    for flag in ("position_offset", "own_positions"):
        if getattr(settings.options, flag) and "positions_BT" not in takes:
            raise UserError(f"--{flag} is for transformers: drop it")
    return generator.most_terms(cfg) * (cfg.digits + 1) - 1 + settings.options.position_offset


class TrainRows(NamedTuple):
    """Rows from which `sample` draws."""

    file: Progressions | None = None  # training rows of a file; None for fresh rows
    missed: Progressions | None = None  # rows of the contexts that certificates missed; unused rows have 0 terms


FRESH = TrainRows()
Rows = dict[str, Progressions] | None  # {split: rows} of a dataset file; None for fresh rows


def train_rows(rows: Rows) -> TrainRows:
    """Return the training rows of a file as arrays."""
    return TrainRows(None if rows is None else jax.device_put(rows["train"]))


def missed(settings: Settings, train_rows: TrainRows, records: list[dict]) -> TrainRows:
    """Add the contexts in records of missed.jsonl to train_rows: as many rows as are mined.

    A run on a file trains on its rows alone, so nothing is added.
    """
    count = mined_rows(settings)
    if train_rows.file is not None or not count:
        return train_rows
    return train_rows._replace(missed=crops.from_records(records, count))


def load(settings: Settings) -> tuple[Settings, Rows]:
    """Return the settings, and the progressions of the dataset file. Raises UserError."""
    name, digits = settings.options.dataset, settings.data.digits
    if name is None:
        for split in generator.SPLITS:
            generator.require_split(settings.data, split)
        return settings, None
    if settings.options.prefix_rows and settings.options.prefix_loss == "alone":
        raise UserError("--prefix_loss alone is for rows of the generator: give --prefix_loss plain")
    rows, width = text_file.read(name)
    if width != digits:
        raise UserError(f"{name} has terms of {width} digits where --digits is {digits}: give --digits {width}", DATA)
    longest = int(rows.terms_B.max()) * (digits + 1) - 1 + settings.options.position_offset
    most = architecture_of(settings).max_tokens(settings.model)
    if most is not None and most < longest:
        raise UserError(f"{name} has rows that take {longest} positions: give --max_len {longest} or more")
    split_B = generator.split_of(rows.difference_B, rows.first_B)
    splits = {split: Progressions(*(leaf[split_B == i] for leaf in rows)) for i, split in enumerate(generator.SPLITS)}
    for split, part in splits.items():
        if not len(part.first_B):
            raise UserError(f"{name} has no {split} rows: give more rows, with differences of 10 and more", DATA)
    return settings, splits


def describe(settings: Settings, rows: Rows) -> dict:
    """Return the description of the data in config.json: counts and a hash, which a resumed run compares."""
    if rows is None:
        return {"source": "sampler"}
    counts = {split: len(part.first_B) for split, part in rows.items()}
    digest = hashlib.sha256(read_bytes(settings.options.dataset)).hexdigest()
    return {"source": settings.options.dataset, "rows": counts, "sha256": digest}


class Step(NamedTuple):
    """Rows of a training step. Validation has `rows` alone."""

    rows: Batch  # ordinary rows, then the candidates of the mined rows
    prefixes: Batch | None = None  # rows cut after two terms
    long: Batch | None = None  # rows that are not cropped
    start_B: jax.Array | None = None  # position of the first token of each of `rows`; None for 0


def sample(key: jax.Array, settings: Settings, train_rows: TrainRows = FRESH) -> Step:
    """Return the Step of a key. Pure; settings are static."""
    sampling, cfg, file = settings.options, settings.data, train_rows.file
    terms, mined = _terms(settings), mined_rows(settings)
    draw = partial(_draw_rows, settings, file)
    row_key, other_key, start_key, round_key, prefix_key = jax.random.split(key, 5)
    ordinary = draw(row_key, settings.training.batch_size - mined)
    # (rows, number of terms before them in their progressions)
    parts = [(ordinary, jnp.zeros_like(ordinary.first_B))]
    if mined:
        candidates = sampling.mined_per_hard * mined
        near = 0 if file is not None else candidates // 2
        progressions = draw(other_key, candidates - near, sampling.long_rows > 0)
        parts.append(crops.anywhere(start_key, progressions, terms))
        if near:
            round_rows = crops.near_round(round_key, cfg, near, terms)
            round_crops = round_rows, crops.terms_before(jax.random.fold_in(round_key, 0), round_rows, cfg, terms)
            if sampling.long_rows:  # crops of long rows seldom hold third terms
                beginnings = draw(jax.random.fold_in(key, 3), near), jnp.zeros(near, jnp.int32)
                round_crops = crops.replace_last(round_crops, beginnings, round_rows.terms_B == 0)
            parts.append(round_crops)
    rows, before_B = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    missed = train_rows.missed
    if missed is not None:
        others = crops.last_terms(missed, cfg.digits, terms)
        rows, before_B = crops.replace_last((rows, before_B), others, missed.terms_B > 0)
    start_B = (cfg.digits + 1) * before_B if mined and sampling.own_positions else None
    step = Step(_encoded(rows, settings, len(ordinary.first_B)), start_B=start_B)
    if sampling.long_rows:
        encode = partial(generator.encode_rows, digits=cfg.digits, terms=generator.most_terms(cfg))
        long = crops.predictable(encode(draw(jax.random.fold_in(key, 1), sampling.long_rows, True)), cfg.digits)
        if missed is not None:
            again = crops.draw_missed(jax.random.fold_in(key, 2), missed, -(-sampling.long_rows // 2))
            others = crops.only_last_term(encode(again), cfg.digits, terms)
            long = crops.replace_last(long, others, again.terms_B[:, None] > 0)
        step = step._replace(long=long)
    if not sampling.prefix_rows:
        return step
    if sampling.prefix_loss == "alone":
        return step._replace(prefixes=first_two_terms.sample(prefix_key, cfg, sampling.prefix_rows))
    prefixes = draw(prefix_key, sampling.prefix_rows)
    return step._replace(prefixes=generator.encode_rows(prefixes, cfg.digits, 2))


def _terms(settings: Settings) -> int:
    """Return the most terms of a training row."""
    return min(settings.options.crop_terms, settings.data.max_terms)


def _encoded(rows: Progressions, settings: Settings, ordinary: int) -> Batch:
    """Encode rows as a Batch. Only in the first `ordinary` rows are the first two terms targets.

    With prefix_loss none they are targets in no row.
    """
    batch = generator.encode_rows(rows, settings.data.digits, _terms(settings))
    return crops.predictable(batch, settings.data.digits, 0 if settings.options.prefix_loss == "none" else ordinary)


def _draw_rows(
    settings: Settings, file: Progressions | None, key: jax.Array, size: int, long: bool = False
) -> Progressions:
    """Draw fresh training rows (if long, with uniform numbers of terms), or rows of a file with replacement."""
    if file is None:
        return crops.long(key, settings.data, size) if long else generator.draw(key, settings.data, size, "train")
    index_B = jax.random.randint(key, (size,), 0, len(file.first_B))
    return Progressions(*(leaf[index_B] for leaf in file))


def validation(settings: Settings, rows: Rows) -> Step:
    """Return the rows by which the best checkpoint is chosen: the first terms of validation progressions."""
    progressions = test_rows(settings, rows, "validation")
    return Step(_encoded(progressions, settings, len(progressions.first_B)))


def floor(settings: Settings, rows: Rows) -> float | None:
    """Return the Bayes predictor's loss on the validation batch, in nats per character; None for rows of a file.

    Only the first two terms have a loss, so the nats of cropped rows are those of full rows.
    """
    if rows is not None:
        return None
    if settings.options.prefix_loss == "none":
        return 0.0
    nats = bayes.bayes_nats(test_rows(settings, None, "validation"), settings.data).sum()
    return float(nats / np.sum(validation(settings, None).rows.weights_BT))


def test_rows(settings: Settings, rows: Rows, split: str = "test") -> Progressions:
    """Return the progressions of a split for an evaluation, as numpy arrays. Only a file has a training split here."""
    key, count = TEST_KEY, settings.options.test_sequences
    if split == "validation":
        key, count = VALIDATION_KEY, VALIDATION_ROWS
    if rows is not None:
        return Progressions(*(leaf[:count] for leaf in rows[split]))
    return jax.device_get(_draw(jax.random.key(key), settings.data, count, split))


def make_loss(settings: Settings) -> Loss:
    """Return loss_fn(params, step, key) -> (loss, metrics); without a key, of step.rows, and nothing is random.

    The loss is the mean cross-entropy of all characters, without the first two terms of mined rows. With prefix_loss
    alone, the rows of two terms replace the first two terms of all other rows, see first_two_terms.py. The metrics are
    of the ordinary rows, so that their loss can be compared with the Bayes floor.
    """
    cfg, mined = settings.data, mined_rows(settings)

    def measure(logits_BTV: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return {"loss": cross_entropy(logits_BTV, batch), "exact": exact(logits_BTV.argmax(-1), batch, cfg.digits)}

    def loss_fn(params: Any, step: Step, key: jax.Array | None) -> LossAndMetrics:
        params = cast_params(params, settings)
        predict = partial(_apply, params, settings)
        if key is None:
            metrics = measure(predict(step.rows.tokens_BT[:, :-1]), step.rows)
            return metrics["loss"], metrics
        row_key, prefix_key = jax.random.split(key)
        rows = step.rows
        start_B = step.start_B
        ordinary = settings.training.batch_size - mined
        if mined:
            fixed = partial(_apply, jax.lax.stop_gradient(params), settings)
            rows, start_B = hardest(rows, ordinary, mined, fixed, start_B)
        logits_BTV = predict(rows.tokens_BT[:, :-1], start_B, row_key)
        metrics = measure(*jax.tree.map(lambda leaf: leaf[:ordinary], (logits_BTV, rows)))
        alone = step.prefixes is not None and settings.options.prefix_loss == "alone"
        rows = crops.predictable(rows, cfg.digits) if alone else rows
        nats, weight = cross_entropy(logits_BTV, rows), rows.weights_BT[:, 1:].sum()
        if step.long is not None:
            nats, weight = joint(nats, weight, predict(step.long.tokens_BT[:, :-1]), step.long)
        if step.prefixes is None:
            return nats, metrics
        prefix_logits_BTV = predict(step.prefixes.tokens_BT[:, :-1], key=prefix_key)
        if not alone:
            return joint(nats, weight, prefix_logits_BTV, step.prefixes)[0], metrics
        prefix_logits_BTV = first_two_terms.without_unseen_digits(prefix_logits_BTV, step.prefixes.tokens_BT, cfg)
        prefix_nats = cross_entropy(prefix_logits_BTV, step.prefixes)
        return (nats + PREFIX_WEIGHT * prefix_nats) / (1 + PREFIX_WEIGHT), metrics

    return loss_fn


def exact(predicted_BT: jax.Array, batch: Batch, digits: int) -> jax.Array:
    """Return the share of predictable terms whose characters are all right; 0 if there are none.

    predicted_BT[:, t] predict batch.tokens_BT[:, t + 1]; a term counts if its characters have weights above 0.
    """
    start = 2 * digits  # index of the prediction of the space after the second term
    masks = (predicted_BT == batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:] > 0)
    right_BN, counted_BN = (mask_BT[:, start:].reshape(len(mask_BT), -1, digits + 1).all(-1) for mask_BT in masks)
    right, count = (right_BN & counted_BN).sum(dtype=jnp.float32), counted_BN.sum(dtype=jnp.float32)
    return right / jnp.maximum(count, 1.0)


def cross_entropy(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean nats of the characters of a batch; logits_BTV[:, t] predict tokens_BT[:, t + 1]."""
    return loss.cross_entropy(logits_BTV, batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:])


def joint(nats: jax.Array, weight: jax.Array, logits_BTV: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Return the mean nats of a character and the total weight, after one more batch; nats, weight: those so far."""
    other_nats, other_weight = cross_entropy(logits_BTV, batch), batch.weights_BT[:, 1:].sum()
    return (nats * weight + other_nats * other_weight) / (weight + other_weight), weight + other_weight


def _apply(
    params: Any,
    settings: Settings,
    tokens_BT: jax.Array,
    start_B: jax.Array | None = None,
    key: jax.Array | None = None,
) -> jax.Array:
    """Apply the model to rows; start_B: positions of their first tokens. A key draws dropout and position offsets."""
    most = settings.options.position_offset
    width = settings.data.digits + 1
    options = {}
    dropout_key, offset_key = (None, None) if key is None else jax.random.split(key)
    if most and offset_key is not None:
        offset_B = width * jax.random.randint(offset_key, (len(tokens_BT),), 0, most // width + 1)
        start_B = offset_B if start_B is None else offset_B + start_B
    if start_B is not None:
        options["positions_BT"] = start_B[:, None] + jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None]
    return training_apply(settings)(params, tokens_BT, settings.model, key=dropout_key, **options)
