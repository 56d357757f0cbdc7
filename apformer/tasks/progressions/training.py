"""Training of the home task: rows to train on and to choose the best checkpoint by, and the loss."""

import hashlib
from collections.abc import Callable
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

PREFIX_WEIGHT = 4.0  # of the loss of rows of two terms; the loss of the other rows has weight 1

NOT_COMPILED = {"options": ("dataset", "test_sequences")}  # settings that no compiled program knows

_draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))


def check(settings: Settings) -> int:
    """Return the longest row in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    generator.check(settings.data)
    options.check(settings.options)
    cfg, offset = settings.data, settings.options.position_offset
    require("vocab_size", settings.model.vocab_size == len(VOCABULARY), settings.model, f"{len(VOCABULARY)}")
    if offset and settings.architecture == "recurrent":
        raise UserError(f"--position_offset {offset} is for transformers: drop it")
    return generator.most_terms(cfg) * (cfg.digits + 1) - 1 + offset


class Given(NamedTuple):
    """Rows that training rows are drawn from, besides a key."""

    file: Progressions | None = None  # training rows of a file; None where fresh rows are drawn
    missed: Progressions | None = None  # rows that certificates named; some of no term


FRESH = Given()
Rows = dict[str, Progressions] | None  # {split: rows} of a dataset file; None where fresh rows are drawn


def train_rows(rows: Rows) -> Given:
    """Return the training rows of a file as arrays."""
    return Given(None if rows is None else jax.device_put(rows["train"]))


def missed(settings: Settings, given: Given, records: list[dict]) -> Given:
    """Return what is given with the contexts that records of missed.jsonl name: as many rows as are mined.

    To rows of a file nothing is added: they are all that such a run may see.
    """
    count = mined_rows(settings)
    if given.file is not None or not count:
        return given
    return given._replace(missed=crops.named(records, settings.data, _terms(settings), count))


def load(settings: Settings) -> tuple[Settings, Rows]:
    """Return the settings, and the progressions of the dataset file. Raises UserError."""
    name, digits = settings.options.dataset, settings.data.digits
    if name is None:
        for split in generator.SPLITS:
            generator.require_split(settings.data, split)
        return settings, None
    if settings.options.prefix_rows and settings.options.prefix_loss == "alone":
        raise UserError("--prefix_loss alone is for rows of the generator: give --prefix_loss plain")
    rows, found = text_file.read(name)
    if found != digits:
        raise UserError(f"{name} has terms of {found} digits where --digits is {digits}: give --digits {found}", DATA)
    longest = int(rows.terms_B.max()) * (digits + 1) - 1
    most = architecture_of(settings).max_tokens(settings.model)
    if most is not None and most < longest:
        raise UserError(f"{name} has rows of {longest} characters: give --max_len {longest} or more")
    split_B = generator.split_of(rows.difference_B, rows.first_B)
    splits = {split: Progressions(*(leaf[split_B == i] for leaf in rows)) for i, split in enumerate(generator.SPLITS)}
    for split, part in splits.items():
        if not len(part.first_B):
            raise UserError(f"{name} has no {split} rows: give more rows, with differences of 10 and more", DATA)
    return settings, splits


def describe(settings: Settings, rows: Rows) -> dict:
    """Return what config.json says of the data: counts and a hash, by which a resumed run knows it again."""
    if rows is None:
        return {"source": "sampler"}
    counts = {split: len(part.first_B) for split, part in rows.items()}
    digest = hashlib.sha256(read_bytes(settings.options.dataset)).hexdigest()
    return {"source": settings.options.dataset, "rows": counts, "sha256": digest}


class Step(NamedTuple):
    """Rows of a training step. Validation has the first kind alone."""

    rows: Batch  # rows as they are drawn, then the candidates of the mined rows
    prefixes: Batch | None = None  # rows cut after two terms
    long: Batch | None = None  # rows that are not cropped
    start_B: jax.Array | None = None  # position of the first token of each of `rows`, where it is not 0


def sample(key: jax.Array, settings: Settings, train_rows: Given = FRESH) -> Step:
    """Return the Step of a key. Pure, settings static."""
    given, cfg = settings.options, settings.data
    terms, mined = _terms(settings), mined_rows(settings)
    row_key, other_key, start_key, round_key, prefix_key = jax.random.split(key, 5)
    drawn = _draw_rows(row_key, settings, train_rows.file, settings.training.batch_size - mined)
    # Rows, and the terms that stand before them: only candidates of mined rows begin later in their rows.
    parts = [(generator.encode_rows(drawn, cfg.digits, terms), jnp.zeros(len(drawn.first_B), jnp.int32))]
    if mined:
        candidates = given.mined_per_hard * mined
        near = 0 if train_rows.file is not None else candidates // 2
        drawn = _draw_rows(other_key, settings, train_rows.file, candidates - near, given.long_rows > 0)
        parts.append(crops.anywhere(start_key, drawn, cfg.digits, terms))
        if near:
            parts.append(_placed(round_key, settings, crops.near_round(round_key, cfg, near, terms)))
    rows, before_B = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    if train_rows.missed is not None:
        others = _placed(jax.random.fold_in(round_key, 1), settings, train_rows.missed)
        rows, before_B = crops.among((rows, before_B), others, train_rows.missed.terms_B > 0)
    start_B = (cfg.digits + 1) * before_B if mined and given.own_positions else None
    step = Step(_counted(rows, settings), start_B=start_B)
    if given.long_rows:
        drawn = _draw_rows(jax.random.fold_in(key, 1), settings, train_rows.file, given.long_rows, True)
        most = generator.most_terms(cfg)
        step = step._replace(long=crops.predictable(generator.encode_rows(drawn, cfg.digits, most), cfg.digits))
    if not given.prefix_rows:
        return step
    if given.prefix_loss == "alone":
        return step._replace(prefixes=first_two_terms.sample(prefix_key, cfg, given.prefix_rows))
    drawn = _draw_rows(prefix_key, settings, train_rows.file, given.prefix_rows)
    return step._replace(prefixes=generator.encode_rows(drawn, cfg.digits, 2))


def _placed(key: jax.Array, settings: Settings, drawn: Progressions) -> tuple[Batch, jax.Array]:
    """Return crops as a Batch whose first two terms are given, and the number of terms before each."""
    cfg, terms = settings.data, _terms(settings)
    batch = crops.predictable(generator.encode_rows(drawn, cfg.digits, terms), cfg.digits)
    return batch, crops.terms_before(jax.random.fold_in(key, 0), drawn, cfg, terms)


def _terms(settings: Settings) -> int:
    """Return the most terms of a training row."""
    return min(settings.options.crop_terms, settings.data.max_terms)


def _counted(batch: Batch, settings: Settings) -> Batch:
    """Return the batch, in which the first two terms count, unless they are to cost nothing."""
    return crops.predictable(batch, settings.data.digits) if settings.options.prefix_loss == "none" else batch


def _draw_rows(
    key: jax.Array, settings: Settings, file: Progressions | None, size: int, long: bool = False
) -> Progressions:
    """Draw fresh training rows, with `long` of all lengths, or rows of a file with replacement."""
    if file is None:
        return crops.long(key, settings.data, size) if long else generator.draw(key, settings.data, size, "train")
    index_B = jax.random.randint(key, (size,), 0, len(file.first_B))
    return Progressions(*(leaf[index_B] for leaf in file))


def validation(settings: Settings, rows: Rows) -> Step:
    """Return held-out rows by which the best checkpoint is chosen: the beginnings of validation progressions."""
    batch = generator.encode_rows(test_rows(settings, rows, "validation"), settings.data.digits, _terms(settings))
    return Step(_counted(batch, settings))


def floor(settings: Settings, rows: Rows) -> float | None:
    """Return the Bayes predictor's loss on the validation batch, in nats per character; None of rows of a file.

    A row's beginning costs it what the whole row does, since only the first two terms cost anything, if they count.
    """
    if rows is not None:
        return None
    if settings.options.prefix_loss == "none":
        return 0.0
    nats = bayes.bayes_nats(test_rows(settings, None, "validation"), settings.data).sum()
    return float(nats / np.sum(validation(settings, None).rows.weights_BT))


def test_rows(settings: Settings, rows: Rows, split: str = "test") -> Progressions:
    """Return the progressions by which a model is judged, as numpy arrays; of a file, those of any split."""
    key, count = TEST_KEY, settings.options.test_sequences
    if split == "validation":
        key, count = VALIDATION_KEY, VALIDATION_ROWS
    if rows is not None:
        return Progressions(*(leaf[:count] for leaf in rows[split]))
    return jax.device_get(_draw(jax.random.key(key), settings.data, count, split))


def make_loss(settings: Settings) -> Loss:
    """Return loss_fn(params, step, key) -> (loss, metrics); without a key, of all rows as they are, and nothing random.

    The loss is the mean cross-entropy of every character that is there, but for the two given terms of mined rows. With
    prefix_loss alone the rows of two terms replace the first two terms of the other rows: see first_two_terms.py. The
    metrics are of rows as the generator draws them, so that their loss can be compared with the Bayes floor.
    """
    run, cfg, apply, mined = settings.training, settings.data, _make_apply(settings), mined_rows(settings)

    def measure(logits_BTV: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        matches = exact(logits_BTV.argmax(-1), batch, cfg.digits)
        return {"loss": cross_entropy(logits_BTV, batch), "exact": matches}

    def loss_fn(params: Any, step: Step, key: jax.Array | None) -> LossAndMetrics:
        params = cast_params(params, settings)
        predict = partial(apply, params, cfg=settings.model)
        if key is None:
            metrics = measure(predict(step.rows.tokens_BT[:, :-1]), step.rows)
            return metrics["loss"], metrics
        row_key, prefix_key = jax.random.split(key)
        rows, start_B, drawn = step.rows, step.start_B, run.batch_size - mined
        if mined:
            of_candidates = predict if start_B is None else partial(predict, start_B=start_B[drawn:])
            kept_B = hardest(rows, drawn, mined, of_candidates)
            rows, start_B = jax.tree.map(lambda leaf: leaf[kept_B], (rows, start_B))
        logits_BTV = predict(rows.tokens_BT[:, :-1], key=row_key, start_B=start_B)
        metrics = measure(*jax.tree.map(lambda leaf: leaf[:drawn], (logits_BTV, rows)))
        alone = step.prefixes is not None and settings.options.prefix_loss == "alone"
        rows = crops.predictable(rows, cfg.digits) if alone else rows
        nats, weight = cross_entropy(logits_BTV, rows), rows.weights_BT[:, 1:].sum()
        if step.long is not None:
            long_nats = cross_entropy(apply(params, step.long.tokens_BT[:, :-1], cfg=settings.model), step.long)
            nats, weight = joint(nats, weight, long_nats, step.long)
        if step.prefixes is None:
            return nats, metrics
        prefix_logits_BTV = predict(step.prefixes.tokens_BT[:, :-1], key=prefix_key)
        if not alone:
            return joint(nats, weight, cross_entropy(prefix_logits_BTV, step.prefixes), step.prefixes)[0], metrics
        prefix_logits_BTV = first_two_terms.without_unseen_digits(prefix_logits_BTV, step.prefixes.tokens_BT, cfg)
        prefix_nats = cross_entropy(prefix_logits_BTV, step.prefixes)
        return (nats + PREFIX_WEIGHT * prefix_nats) / (1 + PREFIX_WEIGHT), metrics

    return loss_fn


def exact(predicted_BT: jax.Array, batch: Batch, digits: int) -> jax.Array:
    """Return the share of the batch's predictable terms whose every character is right; 0 if it has none.

    predicted_BT[:, t] stands for batch.tokens_BT[:, t + 1]; a term counts when its characters carry weight.
    """
    start = 2 * digits  # of the space after the second term, among predictions
    masks = (predicted_BT == batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:] > 0)
    right_BN, counted_BN = (mask_BT[:, start:].reshape(len(mask_BT), -1, digits + 1).all(-1) for mask_BT in masks)
    right, count = (right_BN & counted_BN).sum(dtype=jnp.float32), counted_BN.sum(dtype=jnp.float32)
    return right / jnp.maximum(count, 1.0)


def cross_entropy(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean nats of the characters of a batch; logits_BTV[:, t] are those of tokens_BT[:, t + 1]."""
    return loss.cross_entropy(logits_BTV, batch.tokens_BT[:, 1:], batch.weights_BT[:, 1:])


def joint(nats: jax.Array, weight: jax.Array, other_nats: jax.Array, other: Batch) -> tuple[jax.Array, jax.Array]:
    """Return the mean nats of all characters of two batches, each with the mean of its own, and their weight."""
    other_weight = other.weights_BT[:, 1:].sum()
    return (nats * weight + other_nats * other_weight) / (weight + other_weight), weight + other_weight


def _make_apply(settings: Settings) -> Callable[..., jax.Array]:
    """Return the model's apply with the positions of first tokens; a key draws dropout, and an offset of positions."""
    apply, most, width = training_apply(settings), settings.options.position_offset, settings.data.digits + 1
    wants_key = architecture_of(settings).wants_key(settings.model)

    def random_apply(
        params: Any, tokens_BT: jax.Array, cfg: Any, *, key: jax.Array | None = None, start_B: jax.Array | None = None
    ) -> jax.Array:
        options = {}
        dropout_key, offset_key = (None, None) if key is None else jax.random.split(key)
        if most and offset_key is not None:
            offset_B = width * jax.random.randint(offset_key, (len(tokens_BT),), 0, most // width + 1)
            start_B = offset_B if start_B is None else offset_B + start_B
        if start_B is not None:
            options["positions_BT"] = start_B[:, None] + jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None]
        return apply(params, tokens_BT, cfg, key=dropout_key if wants_key else None, **options)

    return random_apply
