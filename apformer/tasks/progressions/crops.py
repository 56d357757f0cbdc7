"""What a training step sees of progressions: stretches of a few terms, from where there is most to learn.

Two terms fix a progression, so a stretch of a few is as good as the whole. Most rules of adding digits show everywhere;
what is rare is a carry that runs through several places, and it runs where a term is close to a round number:

    z = m 10^j + r,   |r| <= 10^i,   i < j       the places i to j - 1 of z are all 0, or all 9
"""

import jax
import jax.numpy as jnp
import numpy as np

from apformer.tasks.batch import Batch
from apformer.tasks.progressions.first_two_terms import siblings
from apformer.tasks.progressions.generator import Config, Progressions, below, draw, encode_rows, split_of


def beginning(progressions: Progressions, cfg: Config, terms: int) -> Batch:
    """The first `terms` terms of every progression.

    The first two weigh so much more as their like is rarer on training lines than among all that cfg can draw; with
    `unseen_digits` left out of the last softmax, what is learned of them is the generator's distribution.

    Pure; cfg and terms are static under jit. Returns arrays of shape (B, terms * (digits + 1) - 1).
    """
    first_B, difference_B, _ = map(jnp.asarray, progressions)
    _, drawn_BV, train_BV = siblings(first_B, first_B + difference_B, cfg)
    weight_B = drawn_BV.sum(1, dtype=jnp.float32) / (drawn_BV & train_BV).sum(1, dtype=jnp.float32)
    return _weigh_opening(encode_rows(progressions, cfg.digits, terms), weight_B, cfg.digits)


def anywhere(key: jax.Array, progressions: Progressions, digits: int, terms: int) -> Batch:
    """`terms` terms from anywhere in every progression.

    They start as no drawn progression does, so the first two, which tell how likely a start is, carry no weight.

    Pure; digits and terms are static under jit. Returns arrays of shape (B, terms * (digits + 1) - 1).
    """
    first_B, difference_B, terms_B = map(jnp.asarray, progressions)
    start_B = below(key, jnp.maximum(terms_B - terms, 0) + 1)
    stretch = Progressions(first_B + start_B * difference_B, difference_B, terms_B - start_B)
    return _weigh_opening(encode_rows(stretch, digits, terms), jnp.zeros(len(first_B)), digits)


def near_round(key: jax.Array, cfg: Config, batch_size: int, terms: int) -> Batch:
    """Stretches of training lines in which a predictable term is close to a round number.

    Their first two terms carry no weight, nor does a row whose line is not of training or that would begin below 0.

    Pure; all but key are static under jit. Returns arrays of shape (batch_size, terms * (digits + 1) - 1).
    """
    keys = jax.random.split(key, 6)
    power_J, top = jnp.asarray(10 ** np.arange(cfg.digits + 1), jnp.int32), 10**cfg.digits - 1
    j_B = 1 + below(keys[0], jnp.full(batch_size, cfg.digits, jnp.int32))
    i_B = below(keys[1], j_B)
    r_B = below(keys[2], 2 * power_J[i_B] + 1) - power_J[i_B]
    term_B = below(keys[3], power_J[cfg.digits - j_B] + 1) * power_J[j_B] + r_B
    difference_B = draw(keys[4], cfg, batch_size).difference_B
    # As many terms stand before it as were drawn, or as fit.
    room_B = jnp.where(difference_B < 0, top - term_B, term_B) // jnp.maximum(abs(difference_B), 1)
    before_B = jnp.minimum(2 + below(keys[5], jnp.full(batch_size, terms - 2, jnp.int32)), room_B)
    first_B = jnp.clip(term_B - before_B * difference_B, 0, top)
    fits_B = (before_B >= 2) & (0 <= term_B) & (term_B <= top) & (split_of(difference_B, first_B) == 0)
    onward_B = jnp.where(difference_B < 0, first_B, top - first_B) // jnp.maximum(abs(difference_B), 1)
    rows = Progressions(first_B, difference_B, jnp.minimum(onward_B, terms - 1) + 1)
    tokens_BT, weights_BT = encode_rows(rows, cfg.digits, terms)
    batch = Batch(tokens_BT, jnp.where(fits_B[:, None], weights_BT, 0.0))
    return _weigh_opening(batch, jnp.zeros(batch_size), cfg.digits)


def _weigh_opening(batch, weight_B, digits):
    """The batch with the weights of its first two terms multiplied."""
    opening_T = jnp.arange(batch.tokens_BT.shape[1]) < 2 * (digits + 1) - 1
    return batch._replace(weights_BT=batch.weights_BT * jnp.where(opening_T[None, :], weight_B[:, None], 1.0))
