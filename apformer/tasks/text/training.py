"""A text as a run sees it: the names of `task`.

`rows` is {"train": tokens_N, "validation": tokens_N, "tokenizer": ..., "validation_characters": how many}.
"""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss
from apformer.errors import DATA, UserError
from apformer.runs import recipes
from apformer.tasks.text import corpus
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer

ON_HOST = {"data": ("text", "tokenizer", "validation_share")}  # settings that no compiled program knows
VALIDATION_TOKENS = 2**14  # of a batch, whose attention and logits must fit in memory


def read_rows(settings):
    """The tokens of the text, and the tokenizer that made them.

    Characters are those of the whole text; byte pairs are learned from the training part. Raises UserError.
    """
    cfg = settings.data
    parts = corpus.split(whole := corpus.read(cfg.text), cfg)
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
    train_N, validation_N = (tokenizer.encode(part).astype(kind) for part in parts)
    for name, tokens_N in (("training", train_N), ("validation", validation_N)):
        if len(tokens_N) <= cfg.context:
            short = f"the {name} part of {cfg.text} has {len(tokens_N):,} tokens, a row {cfg.context + 1:,}"
            raise UserError(f"{short}: give a longer text, or a smaller --context", DATA)
    characters = len(parts[1])
    return {"train": train_N, "validation": validation_N, "tokenizer": tokenizer, "validation_characters": characters}


def fitted(settings, rows):
    """The settings with a model whose vocabulary is the tokenizer's."""
    return replace(settings, model=replace(settings.model, vocab_size=rows["tokenizer"].vocab_size))


def describe_rows(settings, rows):
    """What config.json says of the data: counts and hashes, by which a resumed run knows it again."""
    return {
        "source": settings.data.text,
        "tokens": {part: len(rows[part]) for part in ("train", "validation")},
        "validation_characters": rows["validation_characters"],
        "sha256": hashlib.sha256(Path(settings.data.text).read_bytes()).hexdigest(),
        "tokenizer_sha256": hashlib.sha256(rows["tokenizer"].to_json().encode()).hexdigest(),
    }


def sample(key, settings, train_rows):
    """The batch of a training step: fresh windows of the training part. Pure, settings static."""
    return corpus.windows(key, train_rows, settings.data, settings.training.batch_size)


def validation_batch(settings, rows):
    """The whole validation part, in batches."""
    return corpus.consecutive(rows["validation"], settings.data, VALIDATION_TOKENS)


def make_loss(settings):
    """loss_fn(params, batch, key) -> (loss, metrics); without a key, of all batches of the validation part."""
    apply, dtype = recipes.module(settings.model).apply, jnp.dtype(settings.training.compute_dtype)

    def loss_fn(params, batch, key):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        if key is None:
            mean = validation_loss(params, batch, settings.model)
            return mean, {"loss": mean}
        return loss.next_token_loss(params, batch, key if settings.model.dropout else None, settings.model, apply=apply)

    return loss_fn


def validation_loss(params, batches, cfg):
    """Mean nats per token of the whole validation part, without dropout."""
    return validation_nats(params, batches, cfg).sum() / batches.weights_BT[..., 1:].sum()


def validation_nats(params, batches, cfg):
    """What every token of the validation part costs, in nats: (batches, rows, context), 0 where it weighs nothing."""
    apply = recipes.module(cfg).apply

    def nats(batch):
        logits_BTV = apply(params, batch.tokens_BT[:, :-1], cfg)
        return loss.token_nats(logits_BTV, batch.tokens_BT[:, 1:]) * batch.weights_BT[:, 1:]

    return jax.lax.map(nats, batches)


def bits_per_character(nats_per_token, rows):
    """The same loss in bits for each character of the validation part, which tokenizers do not change."""
    return nats_per_token / math.log(2) * (len(rows["validation"]) - 1) / rows["validation_characters"]


def hint(cfg, run):
    """A command for the user to try on a run."""
    return f"apformer generate {run} --tokens 200"
