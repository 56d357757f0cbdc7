"""The flags of a diversified translator, and what its training adds: BPE-dropout and R-Drop.

R-Drop (Liang et al. 2021, arXiv 2106.14448, half of equation 3) asks the model twice, each time with other dropout,
and charges for what differs, with p = softmax(y) and q = softmax(z) of the two passes' logits:

    loss + weight / 2 * J,    J = (KL(p || q) + KL(q || p)) / 2 = sum_v (p_v - q_v) (y_v - z_v) / 2
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import loss, seq2seq, train
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.report import progress
from apformer.settings import Settings, training_apply
from apformer.tasks import translation
from apformer.tasks.translation import batches, training
from apformer.tokenizers.text import BytePairs
from apformer_lab.diversified import dropout

CUTS = 8  # of each training sentence, with BPE-dropout


@dataclass(frozen=True)
class Config(translation.Config):
    """The sentences, and their conversion to tokens."""

    byte_pair_dropout: float = 0.0
    """Share of the merges left out at random where training sentences become tokens (BPE-dropout). Each sentence is
    then kept in eight cuts. With 0, there is one cut."""


@dataclass(frozen=True)
class Options(translation.Options):
    """Training of an encoder-decoder on pairs of sentences, and its search for translations."""

    r_drop: float = 0.0
    """Weight of the divergence between two passes over a batch, each with its own dropout (R-Drop). With 0, there is
    one pass. A second pass doubles the time of a step."""
    mbr: int = 0
    """Minimum Bayes risk: number of the best beams to compare. The translation is the one most like the others. With 0,
    it is the best beam."""
    memory: int = 0
    """Number of training pairs that each sentence looks up while it is translated: those whose sources have most in
    common with it. With 0, none. A pair of the very same source is left out."""


def diversified(source: str | None = None, init_from: str | None = None) -> Settings:
    """Return the settings of recipe `translate`, for the flags of this task."""
    settings = translation.RECIPES["translate"](source, init_from)
    return replace(
        settings,
        task="diversified",
        training=replace(settings.training, recipe="diversified"),
        data=Config(**vars(settings.data)),
        options=Options(**vars(settings.options)),
    )


RECIPES = {"diversified": diversified}
NOT_COMPILED = {
    "data": (*training.NOT_COMPILED["data"], "byte_pair_dropout"),
    "options": (*training.NOT_COMPILED["options"], "mbr", "memory"),
}


def check(settings: Settings) -> int:
    """Return the longest sentence, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    data, options = settings.data, settings.options
    require("byte_pair_dropout", 0 <= data.byte_pair_dropout < 1, data, "at least 0 and less than 1")
    require("r_drop", 0 <= options.r_drop < 1000, options, "at least 0 and less than 1000")
    if options.r_drop and not seq2seq.wants_key(settings.model):
        raise UserError("--r_drop compares two passes that differ by dropout: give --dropout, or --r_drop 0", USAGE)
    check_search(options)
    return training.check(settings)


def check_search(options: Options) -> None:
    """Raise UserError (exit USAGE) that names the flag of the search which does not fit."""
    fits = options.mbr == 0 or 2 <= options.mbr <= options.beams
    require("mbr", fits, options, f"0, or 2 to {options.beams}, or more --beams")
    require("memory", 0 <= options.memory < 2**31, options, "0 to 2147483647")


def load(settings: Settings) -> tuple[Settings, dict[str, Any]]:
    """Return settings and rows as `translation.training.load` does, the training rows in CUTS cuts with BPE-dropout."""
    settings, rows = training.load(settings)
    cfg = settings.data
    if cfg.byte_pair_dropout:
        sides = zip(rows["tokenizers"], rows["lines"]["train"][:2], strict=True)
        source, target = (_cut(tokenizer, side, cfg, seed) for seed, (tokenizer, side) in enumerate(sides))
        rows["train"] = batches.pad((source, target), cfg.widths)
    return settings, rows


def _cut(tokenizer: BytePairs, sentences: list[str], cfg: Config, seed: int) -> list[np.ndarray]:
    """Return the tokens of all sentences CUTS times; a cut that is too long gives way to that without dropout."""
    end = np.int32(tokenizer.vocab_size)
    plain = [np.append(tokenizer.encode(text)[: cfg.longest - 1], end) for text in sentences]
    short = [text if len(plain_T) < cfg.longest else "" for text, plain_T in zip(sentences, plain, strict=True)]
    bar = partial(progress.bar, desc="words cut in other ways", unit="word", leave=False)
    cuts = islice(dropout.cuts(tokenizer, short, cfg.byte_pair_dropout, seed, bar), CUTS)
    rows = (row for cut in cuts for row in zip(cut, short, plain, strict=True))
    return [np.append(cut_T, end) if text and len(cut_T) < cfg.widths[-1] else plain_T for cut_T, text, plain_T in rows]


def make_loss(settings: Settings) -> Callable:
    """Return loss_fn(params, batch, key) -> (loss, metrics) of `translation`, with R-Drop where it is asked for."""
    plain, weight = training.make_loss(settings), settings.options.r_drop
    if not weight:
        return plain
    widths, cfg, dtype = settings.data.widths, settings.model, jnp.dtype(settings.training.compute_dtype)
    shapes = zip(batches.rows_of(widths, settings.training.batch_size), widths, strict=True)
    apply, smoothing = training_apply(settings), settings.options.label_smoothing

    def of_shape(
        shape: tuple[int, int], params: Any, flat: batches.Padded, key: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        part = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), batches.unpack(flat, *shape))
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        logits_BTV, weights_BT = training.predict(params, part, cfg, key, apply=apply)
        smoothed, nats = (loss.cross_entropy(logits_BTV, part.target_NT, weights_BT, e) for e in (smoothing, 0.0))
        apart = divergence(*jnp.split(logits_BTV, 2), jnp.split(weights_BT, 2)[0])
        return smoothed + weight / 2 * apart, {"loss": smoothed, "nats": nats, "divergence": apart}

    of_any_width = train.switch([partial(of_shape, shape) for shape in shapes])
    return lambda params, batch, key: (plain if key is None else of_any_width)(params, batch, key)


def divergence(first_BTV: jax.Array, second_BTV: jax.Array, weights_BT: jax.Array) -> jax.Array:
    """Return the mean of J over the tokens of weight 1, in nats; tokens of weight 0 are padding."""
    real_BT1 = weights_BT[:, :, None] > 0  # padding may hold anything, and 0 times infinity is not 0
    first_BTV, second_BTV = (jnp.where(real_BT1, x_BTV.astype(jnp.float32), 0.0) for x_BTV in (first_BTV, second_BTV))
    difference_BTV = jax.nn.softmax(first_BTV) - jax.nn.softmax(second_BTV)
    return (difference_BTV * (first_BTV - second_BTV)).sum() / 2 / jnp.maximum(weights_BT.sum(), 1.0)
