"""Pairs of sentences as a run sees them: pairs to train on and to choose the best checkpoint by, and the loss.

y_0 = end, y_1 .. y_T = end        the decoder reads y_0 .. y_T-1 and is to say y_1 .. y_T
"""

import hashlib
import sys
from dataclasses import fields, replace
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss, seq2seq, train
from apformer.decoding import buckets
from apformer.errors import DATA, USAGE, UserError
from apformer.flags import require
from apformer.report import progress
from apformer.settings import training_apply
from apformer.tasks.translation import batches as padded
from apformer.tasks.translation import corpus, vocabularies
from apformer.tokenizers import dropout

NOT_COMPILED = {  # settings that no compiled program knows
    "data": tuple(field.name for field in fields(corpus.Config) if field.name != "widths"),
    "options": ("init_from", "beams", "alpha", "mbr", "memory", "memory_share", "memory_temperature"),
}
WIDTHS = 6
CUTS = 8  # of a training sentence into tokens, where byte pairs have dropout
VALIDATION_TOKENS = 4096  # of a batch on either side


def check(settings):
    """The longest sentence, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    corpus.check(settings.data)
    options = settings.options
    require("beams", 1 <= options.beams < 2**15, options, "1 to 32767")
    require("label_smoothing", 0 <= options.label_smoothing < 1, options, "at least 0 and less than 1")
    require("r_drop", 0 <= options.r_drop < 1000, options, "at least 0 and less than 1000")
    if options.r_drop and not seq2seq.wants_key(settings.model):
        raise UserError("--r_drop compares two passes that differ by dropout: give --dropout, or --r_drop 0", USAGE)
    require("alpha", 0 <= options.alpha < 100, options, "at least 0 and less than 100")
    require_mbr(options)
    require("memory", 0 <= options.memory < 2**31, options, "0 to 2147483647")
    require("memory_share", 0 <= options.memory_share < 1, options, "at least 0 and less than 1")
    fits = 1e-3 <= options.memory_temperature < 1e6
    require("memory_temperature", fits, options, "at least 0.001 and less than 1000000")
    return settings.data.longest


def require_mbr(options):
    """Raises UserError (exit USAGE) where --mbr compares no beams, or more than there are."""
    if options.beams == 1 and options.mbr:
        fault = f"--beams 1 leaves --mbr {options.mbr} nothing to compare"
        raise UserError(f"{fault}: give --mbr 0, or more --beams", USAGE)
    fits = options.mbr == 0 or 2 <= options.mbr <= options.beams
    require("mbr", fits, options, f"0, or 2 to {options.beams}, or more --beams")


def read_rows(settings):
    """Pairs as tokens, and the byte pairs, which are learned from the training part. Raises UserError."""
    cfg = settings.data
    lines = corpus.read(cfg)
    folder = init_from(settings)
    tokenizers = vocabularies.learn(lines["train"], cfg) if folder is None else vocabularies.given(folder, cfg)
    tokens = {part: encode(tokenizers, lines[part], cfg) for part in ("train", "validation")}
    encode_side(tokenizers[0], lines["test"].sources, lines["test"].names[0], cfg)  # refused now, not after training
    if cfg.byte_pair_dropout:
        sides = zip(tokenizers, lines["train"][:2], tokens["train"], strict=True)
        tokens["train"] = tuple(_cut_anew(*side, cfg, seed) for seed, side in enumerate(sides))
    lengths = np.unique(padded.longest_of(tokens["train"]), return_counts=True)
    widths = cfg.widths or buckets.widths(*lengths, most=WIDTHS)
    rows = {part: padded.pad(sides, (*widths, cfg.longest)) for part, sides in tokens.items()}
    rows["train"] = _of_widths(rows["train"], widths, cuts=len(tokens["train"][0]) // len(lines["train"].sources))
    return rows | {"lines": lines, "tokenizers": tokenizers, "widths": widths}


def init_from(settings):
    """The folder of the run whose model training begins with, or None."""
    return settings.options.init_from


def kept(settings, path):
    """The settings with the vocabulary that the run at `path` keeps; the run that it was taken from may be gone."""
    if init_from(settings) is None:
        return settings
    return replace(settings, options=replace(settings.options, init_from=str(path)))


def _of_widths(parts, widths, cuts):
    """The training pairs that batches are of: without those that are longer than all widths asked for, which are told.

    cuts: the number of rows of each pair. Raises UserError (exit USAGE) for a width that no pair needs.
    """
    *parts, longer = parts
    for part, width in zip(parts, widths, strict=True):
        if not len(part.source_NS):
            fault = f"--widths {width} is that of no training pair"
            raise UserError(f"{fault}: leave it out, or restore the text that a run was trained on", USAGE)
    if left_out := len(longer.source_NS) // cuts:
        print(f"{left_out:,} training pairs longer than --widths {widths[-1]} are left out", file=sys.stderr)
    return tuple(parts)


def load(settings):
    """(settings, rows): each vocabulary is that of a tokenizer and the end token, the widths suit the data."""
    rows = read_rows(settings)
    source, target = (tokenizer.vocab_size + 1 for tokenizer in rows["tokenizers"])
    shared = {} if settings.data.vocabularies == "shared" else {"share_embeddings": False}
    shape = replace(settings.model, source_vocab_size=source, target_vocab_size=target, **shared)
    return replace(settings, model=shape, data=replace(settings.data, widths=rows["widths"])), rows


def files(rows):
    """The tokenizer, or one for each side."""
    return vocabularies.files(rows["tokenizers"])


def train_rows(rows):
    """The training pairs of each width."""
    return jax.device_put(rows["train"])


def floor(settings, rows):
    """Not known: nobody knows the only right translation."""
    return None


def describe(settings, rows):
    """What config.json says of the data: counts and hashes, by which a resumed run knows it again."""
    cfg, lines = settings.data, rows["lines"]
    text = "\n".join(line for part in lines.values() for side in part[:2] for line in side)
    return {
        "source": cfg.source or f"number words from {cfg.from_language} to {cfg.to_language}",
        "pairs": {part: len(found.sources) for part, found in lines.items()},
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "tokenizer_sha256": vocabularies.sha256(rows["tokenizers"]),
    }


def encode(tokenizers, lines, cfg):
    """(sources, targets), each as `encode_side` gives it."""
    sides = zip(tokenizers, lines[:2], lines.names, strict=True)
    return tuple(encode_side(tokenizer, side, name, cfg) for tokenizer, side, name in sides)


def encode_side(tokenizer, sentences, name, cfg, remedy="give a greater --longest, or --too_long cut"):
    """Sentences as int32 arrays, each with the end token.

    Sentences longer than `cfg.longest` are cut where the run was told to cut them; how many, it says on standard error.
    Otherwise raises UserError (exit DATA) that names the file, the first such sentence, and the remedy.
    """
    end, tokens = np.int32(tokenizer.vocab_size), [tokenizer.encode(sentence) for sentence in sentences]
    long = [number for number, tokens_T in enumerate(tokens, 1) if len(tokens_T) >= cfg.longest]
    if long and cfg.too_long == "refuse":
        fault = f"{name}, sentence {long[0]:,} has {len(tokens[long[0] - 1]) + 1:,} tokens with its end"
        raise UserError(f"{fault}, more than {cfg.longest}: {remedy}", DATA)
    if long:
        many = f"{len(long):,} of {len(tokens):,} sentences are cut to {cfg.longest} tokens"
        print(f"{name}: {many}; the first is sentence {long[0]:,}", file=sys.stderr)
    return [np.append(tokens_T[: cfg.longest - 1], end) for tokens_T in tokens]


def _cut_anew(tokenizer, sentences, plain, cfg, seed):
    """Sentences as `encode_side` gives them, CUTS times, each time with other merges left out.

    plain: what `encode_side` gives; a sentence that would be too long otherwise stays as it is there.
    """
    end, most = np.int32(tokenizer.vocab_size), cfg.widths[-1] if cfg.widths else cfg.longest
    # Not by the widths, which a run keeps once they are found: resumed, it has to draw what it drew before.
    short = [text if len(plain_T) < cfg.longest else "" for text, plain_T in zip(sentences, plain, strict=True)]
    bar = partial(progress.bar, desc="words cut in other ways", unit="word", leave=False)
    anew = islice(dropout.cuts(tokenizer, short, cfg.byte_pair_dropout, seed, bar), CUTS)
    rows = (row for cut in anew for row in zip(cut, short, plain, strict=True))
    return [np.append(cut_T, end) if text and len(cut_T) < most else plain_T for cut_T, text, plain_T in rows]


def sample(key, settings, train_rows):
    """The batch of a key, of one width. Pure, settings static."""
    return padded.draw(key, train_rows, padded.rows_of(settings.data.widths, settings.training.batch_size))


def validation(settings, rows):
    """All validation pairs, of each width in batches."""
    return tuple(padded.consecutive(part, VALIDATION_TOKENS) for part in rows["validation"] if len(part.source_NS))


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics); without a key, of all validation pairs.

    loss: of smoothed targets, by which the best checkpoint is chosen too: a model that is taught to be unsure comes to
    translate better while the nats of the plain targets, which are the other metric, rise. With r_drop, training
    adds r_drop / 2 times the divergence of two passes to their mean loss (Liang et al. 2021, half of equation 3).
    """
    widths, cfg, dtype = settings.data.widths, settings.model, jnp.dtype(settings.training.compute_dtype)
    shapes = list(zip(padded.rows_of(widths, settings.training.batch_size), widths, strict=True))
    options, apply = settings.options, training_apply(settings)
    smoothing = options.label_smoothing

    def of_shape(shape, params, flat, key):
        part = padded.unpack(flat, *shape)
        part = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), part) if options.r_drop else part
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        logits_BTV, weights_BT = predict(params, part, cfg, key, apply=apply)
        smoothed, nats = (loss.cross_entropy(logits_BTV, part.target_NT, weights_BT, e) for e in (smoothing, 0.0))
        metrics = {"loss": smoothed, "nats": nats}
        if not options.r_drop:
            return smoothed, metrics
        apart = loss.divergence(*jnp.split(logits_BTV, 2), jnp.split(weights_BT, 2)[0])
        return smoothed + options.r_drop / 2 * apart, metrics | {"divergence": apart}

    of_any_width = train.switch([partial(of_shape, shape) for shape in shapes])

    def loss_fn(params, batch, key):
        if key is None:
            metrics = validation_losses(params, batch, cfg, smoothing)
            return metrics["loss"], metrics
        return of_any_width(params, batch, key)

    return loss_fn


def predict(params, part, cfg, key=None, *, apply=seq2seq.apply):
    """(logits_BTV, weights_BT): of every target token, and 1 where there is one; the end token begins each target."""
    lengths_B = part.target_lengths_N
    end = jnp.full_like(part.target_NT[:, :1], cfg.target_vocab_size - 1)
    inputs_BT = jnp.concatenate([end, part.target_NT[:, :-1]], axis=1)
    logits_BTV = apply(
        params,
        part.source_NS,
        inputs_BT,
        cfg,
        key=key if seq2seq.wants_key(cfg) else None,
        source_lengths_B=part.source_lengths_N,
        target_lengths_B=lengths_B,
    )
    return logits_BTV, (jnp.arange(inputs_BT.shape[1])[None] < lengths_B[:, None]).astype(jnp.float32)


def validation_losses(params, batches, cfg, smoothing):
    """The metrics of batches of several widths, per target token, its end counted."""

    def totals(part):
        logits_BTV, weights_BT = predict(params, part, cfg)
        nats = (loss.token_nats(logits_BTV, part.target_NT, e) for e in (smoothing, 0.0))
        return [(nats_BT * weights_BT).sum() for nats_BT in nats] + [weights_BT.sum()]

    each = [jax.lax.map(totals, part) for part in batches]
    smoothed, nats, weight = (sum(jnp.sum(found) for found in same) for same in zip(*each, strict=True))
    return {"loss": smoothed / weight, "nats": nats / weight}


def example(settings, run):
    """A command for the user to try on a run."""
    sentence = corpus.example(settings.data)
    return f'apformer translate {run} "{sentence}"'
