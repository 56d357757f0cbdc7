"""Training on a text: the tokens, the validation rows, and the loss."""

import hashlib
import json
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from apformer import loss
from apformer.errors import DATA, UserError, tell
from apformer.flags import require
from apformer.settings import Settings, architecture_of, training_apply, with_part
from apformer.tasks import Feed, Loss, LossAndMetrics, defaults
from apformer.tasks.batch import Batch
from apformer.tasks.text import corpus, folders, lora, perplexity, shards
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer

NOT_COMPILED = {  # settings that no compiled program depends on
    "training": ("seed",),
    "data": ("text", "tokenizer", "special_tokens", "validation_share"),
    "options": ("init_from",),
}
LEARNED = ("characters", "byte_pairs")  # tokenizers that are made from the text


def check(settings: Settings) -> int:
    """Return the longest row in tokens. Raises UserError (exit USAGE) for a flag that is out of range."""
    data, options, cfg = settings.data, settings.options, settings.model
    corpus.check(data)
    source = options.init_from
    rank = options.lora_rank
    learned = data.tokenizer in LEARNED
    require("lora_rank", 0 <= rank <= cfg.d_model, options, f"0 to {cfg.d_model}, the width of the model")
    require("lora_alpha", 0 < options.lora_alpha < 1e6, options, "more than 0 and less than 1000000")
    if rank and options.lora_on == "attention" and settings.architecture != "model":
        fault = f"--lora_on attention adapts queries, keys and values, and --architecture {settings.architecture}"
        raise UserError(f"{fault} has none: drop the flag")
    if not rank and (options.lora_on, options.lora_alpha) != (corpus.Options.lora_on, corpus.Options.lora_alpha):
        raise UserError("--lora_on and --lora_alpha go with --lora_rank: give it, or drop them")
    if source is None:
        if rank:
            fault = f"--lora_rank {rank} adapts a model that was trained before"
            raise UserError(f"{fault}: give --init_from FOLDER, or drop the flag")
    elif learned:
        fault = f"--tokenizer {data.tokenizer} contradicts --init_from {source}, which has a tokenizer of its own"
        raise UserError(f"{fault}: drop the flag")
    else:
        most = architecture_of(settings).max_tokens(cfg) or data.context
        require("context", data.context <= most, data, f"at most {most}, the positions of {source}")
    if data.special_tokens and learned and not shards.are_in(data.text):
        fault = f"--tokenizer {data.tokenizer} has no special tokens"
        raise UserError(f"{fault}: give --tokenizer FILE with special tokens, or drop --special_tokens")
    return data.context


def read_rows(settings: Settings) -> shards.Prepared:
    """Return the tokens of the text and their tokenizer.

    Characters are those of the whole text; byte pairs are learned from the training part. The training part of a folder
    that datasets/text/prepare.py wrote stays in its files.

    Raises:
        UserError: USAGE for a flag that contradicts a folder, DATA for a text or folder that cannot be read.
    """
    cfg = settings.data
    vocab_size, source = settings.model.vocab_size, settings.options.init_from
    if shards.are_in(cfg.text):
        rows = _prepared_rows(cfg, vocab_size if source else 2**32)
        if source is not None:
            text_tokenizer.for_model(rows.tokenizer, vocab_size, source)
        return rows
    text = corpus.read(cfg.text)
    if not text:
        raise UserError(f"{cfg.text} is empty: give a text to train on", DATA)
    train_text, validation_text = corpus.split(text, cfg)
    if cfg.tokenizer == "characters":
        tokenizer = text_tokenizer.train_characters(text)
    elif cfg.tokenizer == "byte_pairs":
        tokenizer = text_tokenizer.train_byte_pairs(train_text, vocab_size)
    else:
        tokenizer = pretrained.load(cfg.tokenizer)
    if source is not None:
        tokenizer = text_tokenizer.for_model(tokenizer, vocab_size, source)
    if source not in (None, cfg.tokenizer):
        with suppress(UserError):  # a folder without a tokenizer, or one that is gone when a run is resumed
            if tokenizer.to_json() != pretrained.load(source).to_json():
                tell(f"the tokenizer of {cfg.tokenizer} is not that of {source}: ids mean other pieces than it learned")
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32

    def encode(part: str, name: str) -> np.ndarray:
        try:
            return tokenizer.encode(part, allowed_special="all" if cfg.special_tokens else ()).astype(dtype)
        except UserError as error:
            raise UserError(f"the {name} part of {cfg.text}: {error}", error.exit_code) from None

    train_N, validation_N = encode(train_text, "training"), encode(validation_text, "validation")
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return shards.Prepared(train_N, validation_N, len(validation_text), tokenizer, sha256)


def _prepared_rows(cfg: corpus.Config, rows: int) -> shards.Prepared:
    for name in ("validation_share", "special_tokens"):
        if getattr(cfg, name) != getattr(corpus.Config, name):
            raise UserError(f"--{name} was fixed when the folder of tokens {cfg.text} was prepared: drop the flag")
    prepared = shards.read(cfg.text or "", rows)
    if cfg.tokenizer != corpus.Config.tokenizer:
        named = None if cfg.tokenizer in LEARNED else pretrained.load(cfg.tokenizer)
        # `prepare.py` adds a token that ends a text to a tokenizer without one.
        if named is None or prepared.tokenizer.to_json() not in (named.to_json(), named.with_end()[0].to_json()):
            fault = f"the tokenizer of {cfg.tokenizer} is not the one that {cfg.text} was prepared with"
            raise UserError(f"{fault}: prepare the text with it in another folder, or name the other", DATA)
    return prepared


def stored_settings(settings: Settings, path: Path) -> Settings:
    """Return the settings with the tokenizer stored in the run at `path`, unless the text gives it.

    So the text is the only other file that is needed.
    """
    if settings.data.tokenizer in LEARNED:
        return settings
    return with_part(settings, "data", tokenizer=str(path))


def load(settings: Settings) -> tuple[Settings, shards.Prepared]:
    """Return the settings, with the vocabulary size of the tokenizer, and the rows. Raises UserError."""
    cfg, rows = settings.data, read_rows(settings)
    for name, tokens_N in (("training", rows.train), ("validation", rows.validation)):
        if len(tokens_N) <= cfg.context:
            fault = f"the {name} part of {cfg.text} has {len(tokens_N):,} tokens, a row {cfg.context + 1:,}"
            raise UserError(f"{fault}: give a longer text, or a smaller --context", DATA)
    if settings.options.init_from is not None:
        return settings, rows._replace(ends=folders.ends(settings.options.init_from))
    return with_part(settings, "model", vocab_size=rows.tokenizer.vocab_size), rows


def files(rows: shards.Prepared) -> dict[str, str]:
    """Return the file of the tokenizer, and that of the tokens that end a text."""
    named = {"generation_config.json": json.dumps({"eos_token_id": rows.ends})} if rows.ends else {}
    return {"tokenizer.json": rows.tokenizer.to_json()} | named


def train_rows(rows: shards.Prepared) -> jax.Array | None:
    """Return the tokens of the training part; None for a folder of tokens, which `feed` reads."""
    return None if isinstance(rows.train, shards.Shards) else jax.device_put(rows.train)


def feed(settings: Settings, rows: shards.Prepared) -> Feed | None:
    """Return a Feed of random windows of a folder of tokens; None for a text in memory, which has the same windows."""
    tokens, places = rows.train, len(rows.train) - settings.data.context
    if not isinstance(tokens, shards.Shards):
        return None
    length, batch_size = settings.data.context + 1, settings.training.batch_size

    def read(random: np.ndarray) -> np.ndarray:
        start_NB = corpus.starts(random, places)
        return tokens.windows(start_NB.reshape(-1), length).reshape(*start_NB.shape, length)

    size = batch_size * length * tokens.dtype.itemsize
    return Feed(partial(corpus.draw, places=places, batch_size=batch_size), read, size)


def describe(settings: Settings, rows: shards.Prepared) -> dict:
    """Return the description of the data in config.json: counts and hashes, which a resumed run compares.

    The hash of a folder of tokens is that of its manifest, which has those of its files.
    """
    return {
        "source": settings.data.text,
        "tokens": {"train": len(rows.train), "validation": len(rows.validation)},
        "validation_characters": rows.validation_characters,
        "sha256": rows.sha256,
        "tokenizer_sha256": hashlib.sha256(rows.tokenizer.to_json().encode()).hexdigest(),
    }


def sample(key: jax.Array, settings: Settings, train_rows: jax.Array) -> Batch:
    """Return the batch of a step: random windows of a text, or the rows of a Feed. Pure; settings are static."""
    rows, context = train_rows, settings.data.context
    if rows.ndim == 1:  # a text, from which rows are drawn with replacement
        start_B = corpus.draw(key, len(rows) - context, settings.training.batch_size)
        rows = rows[start_B[:, None] + jnp.arange(context + 1, dtype=jnp.int32)[None]]
    return Batch(rows.astype(jnp.int32), jnp.ones(rows.shape))


def validation(settings: Settings, rows: shards.Prepared) -> Batch:
    """Return the whole validation part, window after window, in batches: (batches, rows, context + 1)."""
    tokens_N, context = rows.validation, settings.data.context
    _, _, count = perplexity.cuts(len(tokens_N), context)
    size = min(count, max(1, perplexity.MOST_TOKENS // context))
    batches = -(-count // size)
    batch = perplexity.windows(tokens_N, context, None, np.arange(batches * size))
    return Batch(*(leaf.reshape(batches, size, -1) for leaf in batch))


def initial_params(key: jax.Array, settings: Settings, loaded: Any = None) -> Any:
    """Return the parameters of the training state: those of the model, or {"base": these, "adapters": factors}.

    The state has the base although no step changes it, so that checkpoints are complete and verified, and the folder of
    the base may be moved. Such a state is a third as large as that of training all weights.
    """
    base, options = defaults.initial_params(key, settings, loaded), settings.options
    if not options.lora_rank:
        return base
    return {"base": base, "adapters": lora.init(jax.random.fold_in(key, 1), base, options.lora_rank, options.lora_on)}


def model_params(params: Any, settings: Settings) -> Any:
    """Return the parameters of the model, its adapters merged. Only the adapters have a gradient."""
    options = settings.options
    if not options.lora_rank:
        return params
    scale = options.lora_alpha / options.lora_rank
    return lora.merge(jax.lax.stop_gradient(params["base"]), params["adapters"], scale)


def adapters(settings: Settings) -> dict | None:
    """Return {rank, alpha, base: folder of the base model} of a run with adapters; None without."""
    options = settings.options
    if not options.lora_rank:
        return None
    return {"rank": options.lora_rank, "alpha": options.lora_alpha, "base": options.init_from}


def make_optimizer(settings: Settings) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of `initial_params`."""
    rule = defaults.make_optimizer(settings)
    return lora.freeze_base(rule) if settings.options.lora_rank else rule


def make_loss(settings: Settings) -> Loss:
    """Return loss_fn(params, batch, key) -> (loss, metrics); without a key, batch is that of `validation`."""
    apply = training_apply(settings)

    def loss_fn(params: Any, batch: Batch, key: jax.Array | None) -> LossAndMetrics:
        params = defaults.cast_params(params, settings)

        def nats(rows: Batch) -> jax.Array:
            return defaults.token_nats(apply(params, rows.tokens_BT[:, :-1], settings.model), rows)

        if key is None:
            mean = jax.lax.map(nats, batch).sum() / batch.weights_BT[..., 1:].sum()
            return mean, {"loss": mean}
        return loss.next_token_loss(params, batch, key, settings.model, apply=apply)

    return loss_fn


def example(settings: Settings, run: str) -> str:
    """Return a command to try on a run."""
    return f"apformer generate {run} --tokens 200"
