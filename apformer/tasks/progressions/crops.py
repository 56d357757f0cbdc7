"""Crops of progressions for training: a few terms from anywhere, or from where carries are rare and long.

Two terms fix a progression, so a crop of a few terms is as good as the whole. Most rules of addition show in every
crop. A carry through several places is rare, and it occurs where a term is close to a round number:

    z = m 10^j + r,   |r| <= 10^i,   i < j       the places i to j - 1 of z are all 0, or all 9

A certificate names contexts: the row (first, difference) after `given` terms, where the next term is asked.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import CHECKPOINT, UserError
from apformer.tasks.batch import Batch
from apformer.tasks.progressions.generator import (
    Config,
    Progressions,
    below,
    draw,
    encode_rows,
    fitting,
    most_terms,
    split_of,
)

_CONTEXT = ("first", "difference", "given")


def anywhere(key: jax.Array, progressions: Progressions, digits: int, terms: int) -> tuple[Batch, jax.Array]:
    """Return `terms` terms from anywhere in every progression, and the number of terms before them, (B,).

    The first two terms are given, as in a prompt: they have weight 0, since drawn progressions start otherwise.

    Pure; digits and terms are static under jit. Returns arrays of shape (B, terms * (digits + 1) - 1).
    """
    first_B, difference_B, terms_B = map(jnp.asarray, progressions)
    start_B = below(key, jnp.maximum(terms_B - terms, 0) + 1)
    crop = Progressions(first_B + start_B * difference_B, difference_B, terms_B - start_B)
    return predictable(encode_rows(crop, digits, terms), digits), start_B


def terms_before(key: jax.Array, crops: Progressions, cfg: Config, terms: int) -> jax.Array:
    """Return how many terms stand before each crop of up to `terms` terms in some row, each number as likely, (B,).

    Pure; cfg and terms are static under jit.
    """
    fits_B = fitting(crops.first_B, -crops.difference_B, cfg.digits) - 1
    return below(key, jnp.minimum(fits_B, max(0, most_terms(cfg) - terms)) + 1)


def long(key: jax.Array, cfg: Config, batch_size: int) -> Progressions:
    """Draw progressions of any number of terms, each as likely: a number, a difference that fits it, a first term.

    A progression goes on for as long as it can. One that is on no training line has no term.

    Pure; all but key are static under jit.
    """
    keys, most, top = jax.random.split(key, 3), most_terms(cfg), 10**cfg.digits - 1
    terms_B = 3 + below(keys[0], jnp.full(batch_size, max(1, most - 2), jnp.int32))
    fits_B = top // (terms_B - 1)
    low_B, high_B = jnp.maximum(cfg.min_difference, -fits_B), jnp.minimum(cfg.max_difference, fits_B)
    difference_B = low_B + below(keys[1], high_B - low_B + 1)
    span_B = (terms_B - 1) * difference_B
    first_B = jnp.maximum(-span_B, 0) + below(keys[2], top + 1 - abs(span_B))
    terms_B = jnp.minimum(fitting(first_B, difference_B, cfg.digits), most)
    return Progressions(first_B, difference_B, jnp.where(split_of(difference_B, first_B) == 0, terms_B, 0))


def near_round(key: jax.Array, cfg: Config, batch_size: int, terms: int) -> Progressions:
    """Draw crops of training lines in which a predictable term is close to a round number.

    A crop that is not on a training line, or that begins below 0, has no term.

    Pure; all but key are static under jit.
    """
    keys = jax.random.split(key, 7)
    power_J, top = jnp.asarray(10 ** np.arange(cfg.digits + 1), jnp.int32), 10**cfg.digits - 1
    j_B = 1 + below(keys[0], jnp.full(batch_size, cfg.digits, jnp.int32))
    i_B = below(keys[1], j_B)
    r_B = below(keys[2], 2 * power_J[i_B] + 1) - power_J[i_B]
    term_B = below(keys[3], power_J[cfg.digits - j_B] + 1) * power_J[j_B] + r_B
    drawn_B = draw(keys[4], cfg, batch_size).difference_B
    # Of some rows the difference is round, so that the terms before are as close to round numbers.
    place_B = power_J[below(keys[6], jnp.full(batch_size, cfg.digits, jnp.int32))]
    round_B = drawn_B // place_B * place_B
    in_range_B = (cfg.min_difference <= round_B) & (round_B <= cfg.max_difference)
    difference_B = jnp.where(in_range_B, round_B, drawn_B)
    # As many terms stand before it as were drawn, or as fit.
    room_B = jnp.where(difference_B < 0, top - term_B, term_B) // jnp.maximum(abs(difference_B), 1)
    before_B = jnp.minimum(2 + below(keys[5], jnp.full(batch_size, terms - 2, jnp.int32)), room_B)
    first_B = jnp.clip(term_B - before_B * difference_B, 0, top)
    fits_B = (before_B >= 2) & (0 <= term_B) & (term_B <= top) & (split_of(difference_B, first_B) == 0)
    terms_B = jnp.minimum(fitting(first_B, difference_B, cfg.digits), terms)
    return Progressions(first_B, difference_B, jnp.where(fits_B, terms_B, 0))


def named(records: list[dict], cfg: Config, terms: int, count: int) -> Progressions:
    """Return `count` rows of up to `terms` terms with the contexts of records of missed.jsonl, the newest first.

    The rows that are left over have no term. Numpy arrays. Raises UserError (exit CHECKPOINT) for other records.
    """
    try:
        told = [np.array([record.get(name, []) for name in _CONTEXT], np.int32) for record in reversed(records)]
        first_N, difference_N, given_N = np.concatenate([np.zeros((3, 0), np.int32), *told], axis=1)
    except (OverflowError, TypeError, ValueError) as error:
        fault = f"missed.jsonl is damaged ({error})"
        raise UserError(f"{fault}: restore it from a copy, or train anew", CHECKPOINT) from None
    # A row that is shorter than its context holds the end of it.
    first_N = first_N + np.maximum(given_N + 1 - terms, 0) * difference_N
    trained_N = split_of(difference_N, first_N) == 0
    found = [*dict.fromkeys(zip(first_N[trained_N].tolist(), difference_N[trained_N].tolist(), strict=True))][:count]
    first_B, difference_B = np.array(found + [(0, 1)] * (count - len(found)), np.int32).reshape(count, 2).T
    terms_B = np.minimum(fitting(first_B, difference_B, cfg.digits), terms)
    return Progressions(first_B, difference_B, np.where(np.arange(count) < len(found), terms_B, 0).astype(np.int32))


def among(rows: Any, missed: Any, there_B: np.ndarray) -> Any:
    """Return the rows, pytrees of arrays, in which the missed rows that are there stand in place of the last. Pure."""

    def replaced(leaf: jax.Array, other: jax.Array) -> jax.Array:
        rest, last = jnp.split(leaf, [len(leaf) - len(other)])
        there = jnp.asarray(there_B).reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.concatenate([rest, jnp.where(there, other, last)])

    return jax.tree.map(replaced, rows, missed)


def predictable(batch: Batch, digits: int) -> Batch:
    """Return the batch with weight 0 on the first two terms: the targets are the terms that follow from them."""
    given_T = jnp.arange(batch.tokens_BT.shape[1]) < 2 * (digits + 1) - 1
    return batch._replace(weights_BT=jnp.where(given_T[None, :], 0.0, batch.weights_BT))
