"""A text as a run sees it: tokens to train on and to choose the best checkpoint by, and the loss."""

import hashlib
import math
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss
from apformer.errors import DATA, USAGE, UserError
from apformer.flags import require
from apformer.settings import architecture_of, training_apply
from apformer.tasks import Feed, plain
from apformer.tasks.text import corpus, lora, shards
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer

NOT_COMPILED = {  # settings that no compiled program knows
    "data": ("text", "tokenizer", "special_tokens", "validation_share"),
    "options": ("init_from",),
}
LEARNED = ("characters", "byte_pairs")  # tokenizers that are made from the text
VALIDATION_TOKENS = 2**14  # of a batch, whose attention and logits must fit in memory


def check(settings):
    """The longest row, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    corpus.check(settings.data)
    options, cfg, most = settings.options, settings.model, architecture_of(settings).max_tokens(settings.model)
    require("lora_rank", 0 <= options.lora_rank <= cfg.d_model, options, f"0 to {cfg.d_model}, the width of the model")
    if options.lora_rank and options.lora_on == "attention" and settings.architecture != "model":
        alone = f"--lora_on attention adapts queries, keys and values, and --architecture {settings.architecture}"
        raise UserError(f"{alone} has none: drop the flag", USAGE)
    require("lora_alpha", 0 < options.lora_alpha < 1e6, options, "more than 0 and less than 1000000")
    tokenizer = settings.data.tokenizer
    if options.init_from is not None and tokenizer in LEARNED:
        fault = f"--tokenizer {tokenizer} contradicts --init_from {options.init_from}, which has a tokenizer of its own"
        raise UserError(f"{fault}: drop the flag", USAGE)
    if options.init_from is None and options.lora_rank:
        fault = f"--lora_rank {options.lora_rank} adapts a model that was trained before"
        raise UserError(f"{fault}: give --init_from FOLDER, or drop the flag", USAGE)
    if settings.data.special_tokens and tokenizer in LEARNED and not os.path.isdir(settings.data.text):
        fault = f"--special_tokens reads what --tokenizer {tokenizer} has not"
        raise UserError(f"{fault}: give --tokenizer FILE with special tokens, or drop the flag", USAGE)
    if options.init_from is not None:
        where = f"at most {most}, the positions of {options.init_from}"
        require("context", most is None or settings.data.context <= most, settings.data, where)
    return settings.data.context


def read_rows(settings):
    """The tokens of the text, and the tokenizer that made them.

    Characters are those of the whole text; byte pairs are learned from the training part. Raises UserError.
    """
    cfg = settings.data
    if os.path.isdir(cfg.text):
        return prepared_rows(cfg)
    if not (whole := corpus.read(cfg.text)):
        raise UserError(f"{cfg.text} is empty: give a text to train on", DATA)
    parts = corpus.split(whole, cfg)
    if cfg.tokenizer == "characters":
        tokenizer = text_tokenizer.train_characters(whole)
    elif cfg.tokenizer == "byte_pairs":
        tokenizer = text_tokenizer.train_byte_pairs(parts[0], settings.model.vocab_size)
    else:
        tokenizer = pretrained.load(cfg.tokenizer)
    return encode_rows(parts, tokenizer, cfg)


def encode_rows(parts, tokenizer, cfg):
    """The rows of a training part and a validation part. Raises UserError (exit DATA) if one is shorter than a row."""
    kind = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32
    tokens = []
    for name, part in zip(("training", "validation"), parts, strict=True):
        try:
            tokens.append(tokenizer.encode(part, allowed_special="all" if cfg.special_tokens else ()).astype(kind))
        except UserError as error:
            raise UserError(f"the {name} part of {cfg.text}: {error}", error.exit_code) from None
    return _rows(cfg, *tokens, tokenizer, len(parts[1]), None)


def prepared_rows(cfg):
    """The rows of a folder that datasets/text/prepare.py wrote, whose training part stays in its files.

    Raises UserError: USAGE for a flag that such a folder decides, DATA for what is wrong with it.
    """
    for name in ("validation_share", "special_tokens"):
        if getattr(cfg, name) != getattr(corpus.Config, name):
            decided = f"--{name} is decided where {cfg.text} was prepared, which is a folder of tokens"
            raise UserError(f"{decided}: drop the flag", USAGE)
    found = shards.read(cfg.text)
    if cfg.tokenizer != corpus.Config.tokenizer:
        _require_same_tokenizer(cfg, found.tokenizer)
    return _rows(cfg, found.train, found.validation, found.tokenizer, found.validation_characters, found.sha256)


def _require_same_tokenizer(cfg, tokenizer):
    """Raises UserError (exit DATA) if --tokenizer is not the one that made the tokens of a folder."""
    if cfg.tokenizer in LEARNED or tokenizer.to_json() not in _with_or_without_end(pretrained.load(cfg.tokenizer)):
        other = f"--tokenizer {cfg.tokenizer} is not the one that {cfg.text} was prepared with"
        raise UserError(f"{other}: drop the flag, or prepare the text with it in another folder", DATA)


def _with_or_without_end(tokenizer):
    """The JSON of a tokenizer as it is, and as `prepare.py` leaves it, with a token that ends a text."""
    return tokenizer.to_json(), tokenizer.with_end()[0].to_json()


def _rows(cfg, train_N, validation_N, tokenizer, characters, sha256):
    for name, tokens_N in (("training", train_N), ("validation", validation_N)):
        if len(tokens_N) <= cfg.context:
            short = f"the {name} part of {cfg.text} has {len(tokens_N):,} tokens, a row {cfg.context + 1:,}"
            raise UserError(f"{short}: give a longer text, or a smaller --context", DATA)
    return {
        "train": train_N,
        "validation": validation_N,
        "tokenizer": tokenizer,
        "validation_characters": characters,
        "prepared": sha256,
    }


def kept(settings, path):
    """The settings with the tokenizer that the run at `path` keeps, unless it is learned from the text.

    So no other file is needed than the text.
    """
    if settings.data.tokenizer in LEARNED:
        return settings
    return replace(settings, data=replace(settings.data, tokenizer=str(path)))


def load(settings):
    """(settings, rows): the vocabulary of the model becomes that of the tokenizer.

    Raises UserError (exit DATA) if the model was trained before, with another vocabulary.
    """
    rows, folder = read_rows(settings), init_from(settings)
    if folder is not None:
        text_tokenizer.check_vocabulary(rows["tokenizer"], settings.model.vocab_size, folder)
        return settings, rows
    return replace(settings, model=replace(settings.model, vocab_size=rows["tokenizer"].vocab_size)), rows


def files(rows):
    """The tokenizer."""
    return {"tokenizer.json": rows["tokenizer"].to_json()}


def train_rows(rows):
    """The tokens of the training part; None of a folder, from which they are fed."""
    return None if rows["prepared"] else jax.device_put(rows["train"])


def feed(settings, rows):
    """Windows that are read from the files of a folder, the same as of a text in memory; None of such a text."""
    if not rows["prepared"]:
        return None
    length, batch_size = settings.data.context + 1, settings.training.batch_size
    tokens, places = rows["train"], len(rows["train"]) - settings.data.context

    def read(drawn):
        start_NB = corpus.starts(drawn, places)
        return tokens.windows(start_NB.reshape(-1), length).reshape(*start_NB.shape, length)

    size = batch_size * length * tokens.dtype.itemsize
    return Feed(partial(corpus.draw, places=places, batch_size=batch_size), read, size)


def floor(settings, rows):
    """Not known: nobody knows how a text goes on."""
    return None


def describe(settings, rows):
    """What config.json says of the data: counts and hashes, by which a resumed run knows it again.

    The hash of a folder is that of its manifest, which holds those of its files.
    """
    return {
        "source": settings.data.text,
        "tokens": {part: len(rows[part]) for part in ("train", "validation")},
        "validation_characters": rows["validation_characters"],
        "sha256": rows["prepared"] or hashlib.sha256(Path(settings.data.text).read_bytes()).hexdigest(),
        "tokenizer_sha256": hashlib.sha256(rows["tokenizer"].to_json().encode()).hexdigest(),
    }


def sample(key, settings, train_rows):
    """The batch of a training step: fresh windows of the training part, or what was fed. Pure, settings static."""
    if train_rows.ndim == 2:
        return corpus.batch(train_rows)
    return corpus.windows(key, train_rows, settings.data, settings.training.batch_size)


def validation(settings, rows):
    """The whole validation part, in batches."""
    return corpus.consecutive(rows["validation"], settings.data, VALIDATION_TOKENS)


def init_from(settings):
    """The folder of the model that training begins with, or None."""
    return settings.options.init_from


def initial_params(key, settings, given=None):
    """What the state holds as parameters: those of the model, or {"base": these, "adapters": their factors}.

    The base is in the state although no step changes it: so a checkpoint is the whole of the run, verified byte for
    byte, and the folder that the model came from may be moved. It takes a third of what training all weights keeps.
    """
    base, options = plain.initial_params(key, settings, given), settings.options
    if not options.lora_rank:
        return base
    return {"base": base, "adapters": lora.init(jax.random.fold_in(key, 1), base, options.lora_rank, options.lora_on)}


def whole(params, settings):
    """The parameters of the model: those of the state, its adapters merged. Their gradient is that of the adapters."""
    options = settings.options
    if not options.lora_rank:
        return params
    scale = options.lora_alpha / options.lora_rank
    return lora.merge(jax.lax.stop_gradient(params["base"]), params["adapters"], scale)


def adapters(settings):
    """{rank, alpha, base: what they were trained on} of the adapters of a run; None where all weights are trained."""
    options = settings.options
    if not options.lora_rank:
        return None
    return {"rank": options.lora_rank, "alpha": options.lora_alpha, "base": options.init_from}


def make_optimizer(settings):
    """The optimizer of `initial_params`."""
    rule = plain.make_optimizer(settings)
    return lora.trained_alone(rule) if settings.options.lora_rank else rule


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics); without a key, of all batches of the validation part."""
    apply, dtype = training_apply(settings), jnp.dtype(settings.training.compute_dtype)
    wants_key = architecture_of(settings).wants_key(settings.model)

    def loss_fn(params, batch, key):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        if key is None:
            mean = validation_loss(params, batch, settings)
            return mean, {"loss": mean}
        key = key if wants_key else None
        return loss.next_token_loss(params, batch, key, settings.model, apply=apply)

    return loss_fn


def validation_loss(params, batches, settings):
    """Mean nats per token of the whole validation part, without dropout."""
    return validation_nats(params, batches, settings).sum() / batches.weights_BT[..., 1:].sum()


def validation_nats(params, batches, settings):
    """What every token of the validation part costs, in nats: (batches, rows, context), 0 where it weighs nothing."""
    apply, cfg = architecture_of(settings).apply, settings.model

    def nats(batch):
        logits_BTV = apply(params, batch.tokens_BT[:, :-1], cfg)
        return loss.token_nats(logits_BTV, batch.tokens_BT[:, 1:]) * batch.weights_BT[:, 1:]

    return jax.lax.map(nats, batches)


def bits_per_character(nats_per_token, rows):
    """The same loss in bits for each character of the validation part, which tokenizers do not change."""
    return nats_per_token / math.log(2) * (len(rows["validation"]) - 1) / rows["validation_characters"]


def example(settings, run):
    """A command for the user to try on a run."""
    return f"apformer generate {run} --tokens 200"
