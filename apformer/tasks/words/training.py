"""Training of word2vec: windows of a freshly subsampled text for each step, and the loss."""

import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import word2vec
from apformer.errors import UserError
from apformer.flags import require_whole
from apformer.settings import Settings, with_part
from apformer.tasks import Loss, LossAndMetrics
from apformer.tasks.defaults import cast_params
from apformer.tasks.words import corpus
from apformer.tasks.words.nearest import listed_words
from apformer.tokenizers import words

NOT_COMPILED = {  # settings that no compiled program depends on
    "training": ("seed",),
    "data": ("text", "digits", "min_count", "validation_share"),
    "options": ("words", "neighbours"),
}
VALIDATION_WINDOWS = 1024


class Batch(NamedTuple):
    """Windows of a text, and the distribution of negatives."""

    windows: words.Windows
    noise_V: jax.Array


def check(settings: Settings) -> int:
    """Return the number of words of a window. Raises UserError (exit USAGE) for a flag that is out of range."""
    require_whole("d_model", settings.model, 2)  # for the picture
    require_whole("neighbours", settings.options)
    corpus.check(settings.data)
    return 2 * settings.data.window + 1


def load(settings: Settings) -> tuple[Settings, corpus.Rows]:
    """Return the settings, with the vocabulary size of the text, and the rows.

    Raises:
        UserError: DATA for a text without neighbours, USAGE for a word of --words that the text lacks, and for a
            --subsample that leaves no text.
    """
    cfg, rows = settings.data, corpus.read(settings.data)
    expected_V = rows.counts_V * np.asarray(words.keep_probability(rows.counts_V, cfg.subsample))
    if expected_V.sum() < 2:
        fault = f"--subsample {cfg.subsample} leaves no two words of {corpus.source(cfg)} to a step"
        raise UserError(f"{fault}: give a greater value, or a longer text")
    listed_words(settings, rows.vocabulary)
    return with_part(settings, "model", vocab_size=len(rows.vocabulary)), rows


def describe(settings: Settings, rows: corpus.Rows) -> dict:
    """Return the description of the data in config.json: counts and a hash, which a resumed run compares."""
    digest = hashlib.sha256("\n".join(rows.vocabulary).encode())
    for part in (rows.train, rows.validation):
        for array_T in (part.words_T, part.passage_T):
            digest.update(np.asarray(array_T).tobytes())
    return {
        "source": corpus.source(settings.data),
        "words": {"train": int(rows.train.length), "validation": int(rows.validation.length)},
        "vocabulary": len(rows.vocabulary),
        "sha256": digest.hexdigest(),
    }


def train_rows(rows: corpus.Rows) -> tuple[words.Corpus, jax.Array]:
    """Return the training part, and the count of each word."""
    return rows.train, jnp.asarray(rows.counts_V, jnp.float32)


def sample(key: jax.Array, settings: Settings, train_rows: tuple[words.Corpus, jax.Array]) -> Batch:
    """Return the batch of a step: fresh windows. Pure; settings are static."""
    text, counts_V = train_rows
    thin_key, window_key = jax.random.split(key)
    if settings.data.subsample < 1:
        text = words.subsample(thin_key, text, words.keep_probability(counts_V, settings.data.subsample))
    windows = words.sample(window_key, text, settings.training.batch_size, settings.data.window)
    return Batch(windows, word2vec.noise(counts_V))


def validation(settings: Settings, rows: corpus.Rows) -> Batch:
    """Return fixed windows of the validation part, which is not subsampled."""
    windows = words.sample(jax.random.key(0), rows.validation, VALIDATION_WINDOWS, settings.data.window)
    return Batch(windows, word2vec.noise(rows.counts_V))


def make_loss(settings: Settings) -> Loss:
    """Return loss_fn(params, batch, key) -> (loss, metrics); without a key, the expected loss over negatives."""

    def loss_fn(params: Any, batch: Batch, key: jax.Array | None) -> LossAndMetrics:
        return word2vec.loss(cast_params(params, settings), batch.windows, key, settings.model, batch.noise_V)

    return loss_fn


def example(settings: Settings, run: str) -> str:
    """Return a command to try on a run."""
    return f"apformer neighbours {run}"
