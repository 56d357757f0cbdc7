"""Learn the distribution of the first two terms of a row without the gaps of the held-out lines.

The third and later terms follow from the first two. Of the first two, a model can only learn the probabilities. It is
evaluated on the distribution of the generator, but training rows lack every held-out line. A model that trains for long
learns these gaps, and its loss on held-out lines grows.

Given all characters before it, the last digit of the second term decides the line. So only this digit has gaps.
`sample` draws all characters before it as the generator does, and `without_unseen_digits` masks the missing digits out
of the softmax, so that the loss does not depend on them.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from apformer.tasks.batch import Batch
from apformer.tasks.progressions import bayes
from apformer.tasks.progressions.generator import UNSPLIT_BELOW, Config, Progressions, draw, encode_rows, split_of


def sample(key: jax.Array, cfg: Config, batch_size: int) -> Batch:
    """Draw the first two terms of rows as the generator does, with a last digit that puts them on training lines.

    An eighth of the rows have a difference below 10, and a smaller weight to compensate (importance sampling). Without
    this they would be one row in fifty, and only they teach a rule: if two terms differ in the last digit alone, the
    second has the larger one. A row has weight 0 if no last digit puts it on a training line.

    Pure; all but key are static under jit. The Batch has shape (batch_size, 2 * (digits + 1) - 1).
    """
    row_key, small_key, digit_key = jax.random.split(key, 3)
    low, high = max(cfg.min_difference, 1 - UNSPLIT_BELOW), min(cfg.max_difference, UNSPLIT_BELOW - 1)
    small = batch_size // 8 if low <= high else 0
    parts = [draw(row_key, cfg, batch_size - small)]
    if small:  # all of their lines are training lines
        parts.append(draw(small_key, replace(cfg, min_difference=low, max_difference=high), small))
    first_B, difference_B, _ = (jnp.concatenate(leaves) for leaves in zip(*parts, strict=True))

    difference_BV, _, train_BV = siblings(first_B, first_B + difference_B, cfg)
    p_BV = bayes.probability(jnp.repeat(first_B, 10), difference_BV.ravel(), cfg).reshape(difference_BV.shape)
    seen_BV = jnp.where(train_BV, p_BV, 0.0)
    digit_B1 = jax.random.categorical(digit_key, jnp.log(seen_BV))[:, None]
    redrawn_B = jnp.take_along_axis(difference_BV, digit_B1, axis=1)[:, 0]
    difference_B = jnp.where(jnp.arange(batch_size) < batch_size - small, redrawn_B, difference_B)

    p_small = max(high - low + 1, 1) / (cfg.max_difference - cfg.min_difference + 1)
    seen_share_B = seen_BV.sum(1) / p_BV.sum(1)
    small_B = abs(difference_B) < UNSPLIT_BELOW
    ratio_B = 1 + small / batch_size * (jnp.where(small_B, seen_share_B / p_small, 0.0) - 1)  # drawn more often by this
    weight_B = jnp.where(seen_share_B > 0, 1 / ratio_B, 0.0)
    rows = Progressions(first_B, difference_B, jnp.full(batch_size, 2, jnp.int32))
    batch = encode_rows(rows, cfg.digits, 2)
    return batch._replace(weights_BT=batch.weights_BT * weight_B[:, None])


def without_unseen_digits(logits_BTV: jax.Array, tokens_BT: jax.Array, cfg: Config) -> jax.Array:
    """Return logits with those of `unseen_digits` so low that their probability is 0."""
    least = jnp.finfo(logits_BTV.dtype).min
    masked_BV = jnp.where(unseen_digits(tokens_BT, cfg), least, logits_BTV[:, -1, :10])  # they predict the last digit
    return logits_BTV.at[:, -1, :10].set(masked_BV)


def unseen_digits(tokens_BT: jax.Array, cfg: Config) -> jax.Array:
    """Return the mask of last digits of the second term that make a held-out line of the generator: (B, 10)."""
    place_C = jnp.asarray(10 ** np.arange(cfg.digits)[::-1], jnp.int32)
    first_B = (tokens_BT[:, : cfg.digits] * place_C[None]).sum(1)
    second_B = (tokens_BT[:, -cfg.digits :] * place_C[None]).sum(1)
    _, possible_BV, train_BV = siblings(first_B, second_B, cfg)
    return possible_BV & ~train_BV


def siblings(first_B: jax.Array, second_B: jax.Array, cfg: Config) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return (differences, possible, train), each (B, 10), for the ten second terms with another last digit.

    possible masks the rows that the generator draws, train those on training lines.
    """
    difference_BV = (second_B - second_B % 10 - first_B)[:, None] + jnp.arange(10, dtype=jnp.int32)[None]
    last_BV = first_B[:, None] + (cfg.min_terms - 1) * difference_BV
    in_range_BV = (cfg.min_difference <= difference_BV) & (difference_BV <= cfg.max_difference)
    possible_BV = in_range_BV & (0 <= last_BV) & (last_BV < 10**cfg.digits)
    return difference_BV, possible_BV, split_of(difference_BV, first_B[:, None]) == 0
