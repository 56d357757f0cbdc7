"""Training of a translator: pairs of sentences for training and validation, and the loss.

y_0 = end, y_1 .. y_T = end        the decoder reads y_0 .. y_T-1 and predicts y_1 .. y_T
"""

import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss, seq2seq, train
from apformer.decoding import buckets
from apformer.errors import DATA, UserError, tell
from apformer.flags import require, require_whole
from apformer.settings import Settings, training_apply, with_part
from apformer.tasks.defaults import cast_params
from apformer.tasks.translation import batches as padded
from apformer.tasks.translation import corpus, scores, vocabularies
from apformer.tasks.translation.batches import Batch, Padded

NOT_COMPILED = {  # settings that no compiled program depends on
    "training": ("seed",),
    "data": tuple(field.name for field in fields(corpus.Config) if field.name != "widths"),
    "options": ("init_from", "beams", "alpha"),
}
Rows = dict[str, Any]  # see the docstring of the package
WIDTHS = 6
VALIDATION_TOKENS = 4096  # tokens of each side of a batch


def check(settings: Settings) -> int:
    """Return the longest sentence, in tokens. Raises UserError (exit USAGE) for a flag that is out of range."""
    corpus.check(settings.data)
    options = settings.options
    require_whole("beams", options, 1, 2**15 - 1)
    require("label_smoothing", 0 <= options.label_smoothing < 1, options, "at least 0 and less than 1")
    require("alpha", 0 <= options.alpha < 9, options, "at least 0 and less than 9")
    return settings.data.longest


def load(settings: Settings) -> tuple[Settings, Rows]:
    """Return the settings, with the vocabulary sizes and the widths of the data, and the rows.

    Byte pairs are learned from the training part. Training pairs longer than all --widths are left out.

    Raises:
        UserError: Exit code DATA for a sentence that is too long, USAGE for a width without pairs or without the text
            extra.
    """
    scores.require()  # before training, after which they are needed
    cfg = settings.data
    lines = corpus.read(cfg)
    tokenizers = vocabularies.learn(lines["train"], cfg, settings.options.init_from)
    tokens = {part: encode(tokenizers, lines[part], cfg) for part in ("train", "validation")}
    encode_side(tokenizers[0], lines["test"].sources, lines["test"].names[0], cfg)  # raises before training
    lengths = np.unique(padded.longest_of(tokens["train"]), return_counts=True)
    widths = cfg.widths or buckets.widths(*lengths, most=WIDTHS)
    *parts, longer = padded.pad(tokens["train"], (*widths, cfg.longest))
    for part, width in zip(parts, widths, strict=True):
        if not len(part.source_NS):
            fault = f"--widths {width} has no training pair"
            raise UserError(f"{fault}: leave it out, or restore the text that a run was trained on")
    if left_out := len(longer.source_NS):
        tell(f"{left_out:,} training pairs longer than --widths {widths[-1]} are left out")
    rows = {
        "train": tuple(parts),
        "validation": padded.pad(tokens["validation"], (*widths, cfg.longest)),
        "lines": lines,
        "tokenizers": tokenizers,
    }
    source, target = (tokenizer.vocab_size + 1 for tokenizer in tokenizers)
    share = settings.model.share_embeddings and cfg.vocabularies == "shared"
    shape = replace(settings.model, source_vocab_size=source, target_vocab_size=target, share_embeddings=share)
    return replace(settings, model=shape, data=replace(cfg, widths=widths)), rows


def stored_settings(settings: Settings, path: Path) -> Settings:
    """Return the settings with the vocabulary stored in the run at `path`: the run at --init_from may be gone."""
    if settings.options.init_from is None:
        return settings
    return with_part(settings, "options", init_from=str(path))


def files(rows: Rows) -> dict[str, str]:
    """Return {name: text} of the tokenizer files, and of the letters of the sources."""
    letters = "".join(sorted({*"".join(rows["lines"]["train"].sources)}))
    return vocabularies.files(rows["tokenizers"]) | {corpus.LETTERS: letters}


def train_rows(rows: Rows) -> tuple[Padded, ...]:
    """Return the training pairs of each width, on the device."""
    return jax.device_put(rows["train"])


def describe(settings: Settings, rows: Rows) -> dict[str, Any]:
    """Return the description of the data in config.json: counts and hashes, which a resumed run compares."""
    cfg, lines = settings.data, rows["lines"]
    text = "\n".join(line for part in lines.values() for side in part[:2] for line in side)
    tokenizers = "".join(vocabularies.files(rows["tokenizers"]).values())
    return {
        "source": cfg.source or f"number words from {cfg.from_language} to {cfg.to_language}",
        "pairs": {name: len(part.sources) for name, part in lines.items()},
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "tokenizer_sha256": hashlib.sha256(tokenizers.encode()).hexdigest(),
    }


def encode(tokenizers: vocabularies.Pair, lines: corpus.Lines, cfg: corpus.Config) -> tuple[list, ...]:
    """Return (sources, targets), each from `encode_side`."""
    return tuple(encode_side(*side, cfg) for side in zip(tokenizers, lines[:2], lines.names, strict=True))


def encode_side(
    tokenizer: vocabularies.Tokenizer,
    sentences: Sequence[str],
    name: str,
    cfg: corpus.Config,
    remedy: str = "give a greater --longest, or --too_long cut",
) -> list[np.ndarray]:
    """Return the int32 tokens of each sentence, with the end token; a blank sentence has this alone.

    With `cfg.too_long` cut, sentences longer than `cfg.longest` are cut, and their number is reported.

    Raises:
        UserError: Exit code DATA, for a sentence that is too long.
    """
    end = np.int32(tokenizer.vocab_size)
    tokens = [tokenizer.encode(sentence if sentence.strip() else "") for sentence in sentences]
    long = [number for number, tokens_T in enumerate(tokens) if len(tokens_T) >= cfg.longest]
    if long and cfg.too_long == "refuse":
        fault = f"{name}: {sentences[long[0]][:40]!r} has {len(tokens[long[0]]) + 1:,} tokens with its end"
        raise UserError(f"{fault}, more than {cfg.longest}: {remedy}", DATA)
    if long:
        many = f"{len(long):,} of {len(tokens):,} sentences are cut to {cfg.longest} tokens"
        tell(f"{name}: {many}; the first is {sentences[long[0]][:40]!r}")
    return [np.append(tokens_T[: cfg.longest - 1], end) for tokens_T in tokens]


def sample(key: jax.Array, settings: Settings, train_rows: tuple[Padded, ...]) -> Batch:
    """Draw a batch of one width. Pure; settings are static under jit."""
    return padded.draw(key, train_rows, padded.rows_of(settings.data.widths, settings.training.batch_size))


def validation(settings: Settings, rows: Rows) -> tuple[Padded, ...]:
    """Return all validation pairs, in batches of each width."""
    return tuple(padded.consecutive(part, VALIDATION_TOKENS) for part in rows["validation"] if len(part.source_NS))


def make_loss(settings: Settings) -> Callable:
    """Return loss_fn(params, batch, key) -> (loss, metrics); without a key, batch is that of `validation`.

    The loss is that of smoothed labels, also to choose the best checkpoint: translations still improve when the other
    metric, the nats of the labels themselves, rises again.
    """
    widths, cfg = settings.data.widths, settings.model
    shapes = zip(padded.rows_of(widths, settings.training.batch_size), widths, strict=True)
    apply, smoothing = training_apply(settings), settings.options.label_smoothing

    def of_shape(shape: tuple[int, int], params: Any, flat: Padded, key: jax.Array | None) -> Any:
        part = padded.unpack(flat, *shape)
        logits_BTV, weights_BT = predict(cast_params(params, settings), part, cfg, key, apply=apply)
        smoothed, nats = (loss.cross_entropy(logits_BTV, part.target_NT, weights_BT, e) for e in (smoothing, 0.0))
        return smoothed, {"loss": smoothed, "nats": nats}

    of_any_width = train.switch([partial(of_shape, shape) for shape in shapes])

    def totals(params: Any, part: Padded) -> list[jax.Array]:
        logits_BTV, weights_BT = predict(params, part, cfg)
        nats = (loss.token_nats(logits_BTV, part.target_NT, e) for e in (smoothing, 0.0))
        return [(nats_BT * weights_BT).sum() for nats_BT in nats] + [weights_BT.sum()]

    def loss_fn(params: Any, batch: Any, key: jax.Array | None) -> Any:
        if key is not None:
            return of_any_width(params, batch, key)
        parts = [jax.lax.map(partial(totals, params), part) for part in batch]
        smoothed, nats, weight = (sum(jnp.sum(total) for total in column) for column in zip(*parts, strict=True))
        return smoothed / weight, {"loss": smoothed / weight, "nats": nats / weight}

    return loss_fn


def predict(
    params: Any, part: Padded, cfg: seq2seq.Config, key: jax.Array | None = None, *, apply: Callable = seq2seq.apply
) -> tuple[jax.Array, jax.Array]:
    """Return the logits_BTV of every target token, and weights_BT: 1 for a token, 0 for padding."""
    lengths_B = part.target_lengths_N
    end = jnp.full_like(part.target_NT[:, :1], cfg.target_vocab_size - 1)
    inputs_BT = jnp.concatenate([end, part.target_NT[:, :-1]], axis=1)
    logits_BTV = apply(
        params,
        part.source_NS,
        inputs_BT,
        cfg,
        key=key,
        source_lengths_B=part.source_lengths_N,
        target_lengths_B=lengths_B,
    )
    return logits_BTV, (jnp.arange(inputs_BT.shape[1])[None] < lengths_B[:, None]).astype(jnp.float32)


def example(settings: Settings, run: str) -> str:
    """Return a command to try on a run."""
    return f"apformer translate {run} {shlex.quote(corpus.example(settings.data, run))}"
