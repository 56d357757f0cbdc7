"""The first two terms of a row, all of it that has to be guessed, and how to learn them without the held-out lines.

The generator does not know of the split, and what is judged is how well its distribution is learned. But training rows
never have the second terms of held-out lines, and the longer a model trains on them, the better it knows these holes.
A line is known by the last digit of its second term, given what stands before it. So that digit alone keeps a hole,
of which the loss says nothing: all before it is drawn as the generator does.
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
    """The first two terms of rows of the generator, with the last digit drawn anew among those on training lines.

    An eighth of the rows have the smallest differences, and weigh as much less (importance sampling). Where two terms
    begin alike, the last digit of the second must be the larger; that only differences below 10 show, in one row of
    fifty, and it is learned late or not at all. A row that no last digit puts on a training line weighs nothing.

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


def unseen_digits(tokens_BT: jax.Array, cfg: Config) -> jax.Array:
    """Last digits of the second term that would make the line one that is not of training, as (B, 10) bool.

    Training rows never have them, however likely they are. A model that is told so learns the holes by heart, as far as
    it can; a softmax over the other digits alone says nothing of them, and leaves them to be inferred.
    """
    place_C = jnp.asarray(10 ** np.arange(cfg.digits)[::-1], jnp.int32)
    first_B = (tokens_BT[:, : cfg.digits] * place_C[None]).sum(1)
    second_B = (tokens_BT[:, cfg.digits + 1 :][:, : cfg.digits] * place_C[None]).sum(1)
    _, drawn_BV, train_BV = siblings(first_B, second_B, cfg)
    return drawn_BV & ~train_BV


def siblings(first_B, second_B, cfg):
    """Of the ten second terms with other last digits: differences, which are drawn, and which make training lines."""
    difference_BV = (second_B - second_B % 10 - first_B)[:, None] + jnp.arange(10, dtype=jnp.int32)[None]
    last_BV = first_B[:, None] + (cfg.min_terms - 1) * difference_BV
    in_range_BV = (cfg.min_difference <= difference_BV) & (difference_BV <= cfg.max_difference)
    drawn_BV = in_range_BV & (0 <= last_BV) & (last_BV < 10**cfg.digits)
    train_BV = split_of(difference_BV, jnp.broadcast_to(first_B[:, None], difference_BV.shape)) == 0
    # A row of a file may be one that the generator does not draw.
    own_BV = jnp.arange(10, dtype=jnp.int32)[None] == (second_B % 10)[:, None]
    return difference_BV, drawn_BV | own_BV, train_BV
