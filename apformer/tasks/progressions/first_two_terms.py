"""The first two terms of a row, and how to learn their distribution without the held-out lines.

The third and later terms follow from the first two. The first two themselves can only be guessed: a model learns how
likely they are. It is judged on the generator's distribution, but training rows lack every held-out line. A model that
trains for long learns these gaps, and its loss on held-out lines grows.

A line is known by the last digit of its second term, once all characters before it are known. So only this digit has
gaps. `sample` draws all characters before it as the generator does, and `without_unseen_digits` masks the missing
digits out of the softmax, so that the loss says nothing about them.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from apformer.tasks.batch import Batch
from apformer.tasks.progressions import bayes
from apformer.tasks.progressions.generator import UNSPLIT_BELOW, Config, Progressions, draw, encode_rows, split_of

SMALL_SHARE = 1 / 8


def sample(key: jax.Array, cfg: Config, batch_size: int) -> Batch:
    """Draw the first two terms of the generator's rows, and the last digit again, from those on training lines.

    An eighth of the rows have a difference below 10, and a weight that is smaller by as much (importance sampling).
    Otherwise they are one row in fifty, and only they show a rule: if two terms differ in the last digit alone, the
    second has the larger one. A row has weight 0 if no last digit puts it on a training line.

    Pure; all but key are static under jit. Returns arrays of shape (batch_size, 2 * (digits + 1) - 1).
    """
    keys = jax.random.split(key, 3)
    low, high = max(cfg.min_difference, 1 - UNSPLIT_BELOW), min(cfg.max_difference, UNSPLIT_BELOW - 1)
    small = int(SMALL_SHARE * batch_size) if low <= high else 0
    parts = [draw(keys[0], cfg, batch_size - small)]
    if small:  # all of their lines are of training
        parts.append(draw(keys[1], replace(cfg, min_difference=low, max_difference=high), small))
    first_B, difference_B, _ = (jnp.concatenate(leaves) for leaves in zip(*parts, strict=True))

    difference_BV, _, train_BV = siblings(first_B, first_B + difference_B, cfg)
    first_BV = jnp.broadcast_to(first_B[:, None], difference_BV.shape)
    p_BV = bayes.probability(first_BV.ravel(), difference_BV.ravel(), cfg).reshape(first_BV.shape)
    seen_BV = jnp.where(train_BV, p_BV, 0.0)
    digit_B1 = jax.random.categorical(keys[2], jnp.log(seen_BV))[:, None]
    anew_B = jnp.take_along_axis(difference_BV, digit_B1, axis=1)[:, 0]
    difference_B = jnp.where(jnp.arange(batch_size) < batch_size - small, anew_B, difference_B)

    p_small = max(high - low + 1, 1) / (cfg.max_difference - cfg.min_difference + 1)
    seen_share_B = seen_BV.sum(1) / p_BV.sum(1)
    small_B = abs(difference_B) < UNSPLIT_BELOW
    oftener_B = 1 + small / batch_size * (jnp.where(small_B, seen_share_B / p_small, 0.0) - 1)
    weight_B = jnp.where(seen_share_B > 0, 1 / oftener_B, 0.0)
    rows = Progressions(first_B, difference_B, jnp.full(batch_size, 2, jnp.int32))
    batch = encode_rows(rows, cfg.digits, 2)
    return batch._replace(weights_BT=batch.weights_BT * weight_B[:, None])


def without_unseen_digits(logits_BTV: jax.Array, tokens_BT: jax.Array, cfg: Config) -> jax.Array:
    """Return the logits of rows, with those of `unseen_digits` so low that the softmax gives them nothing."""
    at = 2 * cfg.digits - 1  # where the last digit of the second term is predicted
    least = jnp.finfo(logits_BTV.dtype).min
    kept_BV = jnp.where(unseen_digits(tokens_BT, cfg), least, logits_BTV[:, at, :10])
    return logits_BTV.at[:, at, :10].set(kept_BV)


def unseen_digits(tokens_BT: jax.Array, cfg: Config) -> jax.Array:
    """Return which last digits of the second term the generator draws that make a held-out line: (B, 10) bool."""
    place_C = jnp.asarray(10 ** np.arange(cfg.digits)[::-1], jnp.int32)
    first_B = (tokens_BT[:, : cfg.digits] * place_C[None]).sum(1)
    second_B = (tokens_BT[:, cfg.digits + 1 :][:, : cfg.digits] * place_C[None]).sum(1)
    _, drawn_BV, train_BV = siblings(first_B, second_B, cfg)
    return drawn_BV & ~train_BV


def siblings(first_B: jax.Array, second_B: jax.Array, cfg: Config) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the differences of the ten second terms that differ in the last digit, and which are drawn, and trained.

    All three are (B, 10); trained are those on training lines.
    """
    difference_BV = (second_B - second_B % 10 - first_B)[:, None] + jnp.arange(10, dtype=jnp.int32)[None]
    last_BV = first_B[:, None] + (cfg.min_terms - 1) * difference_BV
    in_range_BV = (cfg.min_difference <= difference_BV) & (difference_BV <= cfg.max_difference)
    drawn_BV = in_range_BV & (0 <= last_BV) & (last_BV < 10**cfg.digits)
    train_BV = split_of(difference_BV, jnp.broadcast_to(first_B[:, None], difference_BV.shape)) == 0
    return difference_BV, drawn_BV, train_BV
