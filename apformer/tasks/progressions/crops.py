"""Crop progressions for training: a few terms from any place, or from places where rare, long carries occur.

Two terms fix a progression, so a model can learn from a few terms. Most rules of addition show in every crop. A carry
through several places is rare, and it occurs where a term is close to a round number:

    z = m 10^j + r,   |r| <= 10^i,   i < j       the places i to j - 1 of z are all 0, or all 9

A certificate names the contexts with the smallest margins: (first, difference, number of given terms).
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
    fitting,
    most_terms,
    split_of,
)


def anywhere(key: jax.Array, progressions: Progressions, terms: int) -> tuple[Progressions, jax.Array]:
    """Return (crops, terms before): every progression from a random term on, and the number of terms before that.

    The term leaves at least `terms` terms; in a shorter progression it is the first. Pure; terms is static under jit.
    """
    first_B, difference_B, terms_B = map(jnp.asarray, progressions)
    start_B = below(key, jnp.maximum(terms_B - terms, 0) + 1)
    return Progressions(first_B + start_B * difference_B, difference_B, terms_B - start_B), start_B


def terms_before(key: jax.Array, crops: Progressions, cfg: Config, terms: int) -> jax.Array:
    """Draw the number of terms before each crop in its row, uniformly from those that fit: (B,).

    A crop has up to `terms` terms. Pure; cfg and terms are static under jit.
    """
    fits_B = fitting(crops.first_B, -crops.difference_B, cfg.digits) - 1
    return below(key, jnp.minimum(fits_B, max(0, most_terms(cfg) - terms)) + 1)


def long(key: jax.Array, cfg: Config, batch_size: int) -> Progressions:
    """Draw long rows: a uniform number of terms, a difference and a first term that fit, and all terms that follow.

    Rows that are not on a training line get 0 terms.

    Pure; all but key are static under jit.
    """
    terms_key, difference_key, first_key = jax.random.split(key, 3)
    most, top = most_terms(cfg), 10**cfg.digits - 1
    terms_B = min(3, most) + below(terms_key, max(1, most - 2), batch_size)
    fits_B = top // (terms_B - 1)
    low_B, high_B = jnp.maximum(cfg.min_difference, -fits_B), jnp.minimum(cfg.max_difference, fits_B)
    difference_B = low_B + below(difference_key, high_B - low_B + 1)
    span_B = (terms_B - 1) * difference_B
    first_B = jnp.maximum(-span_B, 0) + below(first_key, top + 1 - abs(span_B))
    terms_B = jnp.minimum(fitting(first_B, difference_B, cfg.digits), most)
    return Progressions(first_B, difference_B, jnp.where(split_of(difference_B, first_B) == 0, terms_B, 0))


def near_round(key: jax.Array, cfg: Config, batch_size: int, terms: int) -> Progressions:
    """Draw crops of training lines in which a predictable term is close to a round number.

    A crop that is on no training line, or starts out of range, gets 0 terms.

    Pure; all but key are static under jit.
    """
    j_key, i_key, r_key, m_key, difference_key, before_key, place_key = jax.random.split(key, 7)
    power_J, top = jnp.asarray(10 ** np.arange(cfg.digits + 1), jnp.int32), 10**cfg.digits - 1
    j_B = 1 + below(j_key, cfg.digits, batch_size)
    i_B = below(i_key, j_B)
    r_B = below(r_key, 2 * power_J[i_B] + 1) - power_J[i_B]
    term_B = below(m_key, power_J[cfg.digits - j_B] + 1) * power_J[j_B] + r_B
    exact_B = draw(difference_key, cfg, batch_size).difference_B
    # Round the difference to a random place, so that earlier terms are as close to round numbers.
    place_B = power_J[below(place_key, cfg.digits, batch_size)]
    round_B = exact_B // place_B * place_B
    in_range_B = (cfg.min_difference <= round_B) & (round_B <= cfg.max_difference)
    difference_B = jnp.where(in_range_B, round_B, exact_B)
    # The number of terms before this term is random, at most as many as fit.
    room_B = jnp.where(difference_B < 0, top - term_B, term_B) // jnp.maximum(abs(difference_B), 1)
    before_B = jnp.minimum(2 + below(before_key, terms - 2, batch_size), room_B)
    first_B = jnp.clip(term_B - before_B * difference_B, 0, top)
    fits_B = (before_B >= 2) & (0 <= term_B) & (term_B <= top) & (split_of(difference_B, first_B) == 0)
    terms_B = jnp.minimum(fitting(first_B, difference_B, cfg.digits), terms)
    return Progressions(first_B, difference_B, jnp.where(fits_B, terms_B, 0))


def from_records(records: list[dict], count: int) -> Progressions:
    """Return the rows of the contexts in records of missed.jsonl, the newest first: their given terms and the next one.

    These are numpy arrays of `count` rows of training lines; unused ones get 0 terms.

    Raises:
        UserError: Exit code CHECKPOINT, for damaged records.
    """
    try:
        names = "first", "difference", "given"
        columns = [np.array([record.get(name, []) for name in names], np.int32) for record in reversed(records)]
        rows = np.concatenate([np.zeros((3, 0), np.int32), *columns], axis=1)
    except (OverflowError, TypeError, ValueError) as error:
        fault = f"missed.jsonl is damaged ({error})"
        raise UserError(f"{fault}: restore it from a copy, or train anew", CHECKPOINT) from None
    rows[2] += 1
    rows = rows[:, split_of(rows[1], rows[0]) == 0]
    _, newest = np.unique(rows[:2], axis=1, return_index=True)
    rows = rows[:, np.sort(newest)[:count]]
    return Progressions(*np.pad(rows, [(0, 0), (0, count - rows.shape[1])]))


def last_terms(rows: Progressions, digits: int, terms: int) -> tuple[Progressions, jax.Array]:
    """Return (crops, terms before): up to `terms` terms that contain the last one of each row. Pure.

    A row without terms gives a crop without terms.
    """
    before_B = jnp.maximum(rows.terms_B - terms, 0)
    first_B = rows.first_B + before_B * rows.difference_B
    fits_B = jnp.minimum(fitting(first_B, jnp.asarray(rows.difference_B), digits), terms)
    return Progressions(first_B, rows.difference_B, jnp.where(rows.terms_B > 0, fits_B, 0)), before_B


def draw_missed(key: jax.Array, rows: Progressions, count: int) -> Progressions:
    """Draw `count` rows of `from_records` with replacement. Pure."""
    index_B = below(key, jnp.maximum((rows.terms_B > 0).sum(), 1), count)
    return Progressions(*(jnp.asarray(leaf)[index_B] for leaf in rows))


def only_last_term(batch: Batch, digits: int, weight: int) -> Batch:
    """Return the batch with `weight` on the characters of the last term of each row, and 0 on all others. Pure."""
    weights_BT = batch.weights_BT
    left_BT = jnp.cumsum(weights_BT[:, ::-1], axis=1)[:, ::-1]  # characters from here to the end of the row
    return batch._replace(weights_BT=jnp.where(left_BT <= digits + 1, weight * weights_BT, 0.0))


def replace_last(rows: Any, others: Any, mask_B: np.ndarray) -> Any:
    """Return rows, pytrees of arrays (B, ...), whose last ones are replaced by the others where mask_B is set. Pure."""

    def replaced(leaf_B: jax.Array, other_B: jax.Array) -> jax.Array:
        rest_B, last_B = jnp.split(leaf_B, [len(leaf_B) - len(other_B)])
        return jnp.concatenate([rest_B, jnp.where(mask_B, other_B, last_B)])

    return jax.tree.map(replaced, rows, others)


def predictable(batch: Batch, digits: int, ordinary: int = 0) -> Batch:
    """Return the batch with weight 0 on the first two terms of all rows but the `ordinary` ones, which come first.

    These terms are then no targets, as in a prompt: a crop does not start as a row of the generator does.
    """
    row_B, place_T = (jnp.arange(size) for size in batch.tokens_BT.shape)
    prompt_BT = (row_B[:, None] >= ordinary) & (place_T < 2 * (digits + 1) - 1)[None]
    return batch._replace(weights_BT=jnp.where(prompt_BT, 0.0, batch.weights_BT))
