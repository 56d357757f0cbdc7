"""Progressions with terms of any width, digit by digit, since int32 ends at nine digits.

A number is a row of digits, the least significant first, and zeros beyond its width. Numbers are added place by place,

    s_c = a_c +- b_c + carry_c      digit s_c mod 10      carry_{c+1} = floor(s_c / 10), -1 for a borrow

and a progression is made around its third term z: z - 2d, z - d, z, z + d ... Of random rows, hardly any have a carry
that runs far. It runs where a term has only zeros or only nines, so `hard` rows have such a run in z, of any length at
any place.

Those are runs of one kind. In general a place of z = 2x - y is open if u = 2 x_i - y_i is 0, -1, 9 or 10: what it
carries depends on what is carried into it. A carry stays unknown all down a run of open places where

    (x, y) = (5a + r, 2r + b)      a, b in 0, 1 and r in 0 .. 4      u = -b if a = 0, 10 - b if a = 1

and a of a place is b of the place above it: after 0 or 10 the question is whether the next carry is -1, after -1 or 9
whether it is 1. With the other a, a place answers that question, and asks its own. `chains` draws such runs.

Rows of one batch have different widths. Their text has the most significant digit first (msb), or the least (lsb).
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import USAGE, UserError
from apformer.tokenizers.digits import VOCABULARY

SPACE = VOCABULARY[" "]
MOST = 1000  # digits of a term
_ENDS = 0.25  # share of the places of a run that answer the question, and ask another


@dataclass(frozen=True)
class Config:
    """The generator of progressions of many widths."""

    digits: int = 6
    """Most digits of a term in training. Each row has a width of its own."""
    order: Literal["msb", "lsb"] = "msb"
    """Order of digits in a term: msb (most significant first) or lsb (least significant first)."""


class Numbers(NamedTuple):
    """Rows of N terms."""

    digits_BNC: jax.Array  # int32, least significant first
    width_B: jax.Array  # digits of each term of a row
    fits_BN: jax.Array  # whether a term, and all before it, is within 0 .. 10^width - 1


class Batch(NamedTuple):
    tokens_BT: jax.Array  # int32; 0 beyond a row's end
    weights_BT: jax.Array  # float32; 1 for the characters of the third and later terms, as far as they fit
    term_BT: jax.Array  # int32; the term that a token is of as a target: a space is of the term after it


def check(cfg):
    """Refuses a Config that no generator can follow. Raises UserError (exit USAGE) that names the flag."""
    if not 1 <= cfg.digits <= MOST:
        raise UserError(f"--digits {cfg.digits} does not fit: give 1 to {MOST} digits", USAGE)


def add(a_BC, b_BC, sign=1):
    """(sum, last carry) of numbers of digits: (B, C), and (B,) of -1, 0 or 1; with sign -1 their difference."""

    def place(carry_B, digits):
        sum_B = digits[0] + sign * digits[1] + carry_B
        return sum_B // 10, sum_B % 10

    carry_B, sum_CB = jax.lax.scan(place, jnp.zeros(len(a_BC), jnp.int32), (a_BC.T, b_BC.T))
    return sum_CB.T, carry_B


def draw(key, width_B, places, terms, hard=False):
    """Rows of terms of the widths given, half of them downwards, differences of 0 to width digits, equally often.

    hard: the third term has a run of zeros or nines, its length and place drawn uniformly. Rows that do not fit are not
    drawn again: `fits_BN` tells. Pure; places (C, at least the largest width), terms and hard are static under jit.
    """
    keys = jax.random.split(key, 7)
    shape_BC, place_1C = (len(width_B), places), jnp.arange(places, dtype=jnp.int32)[None]
    inside_BC = place_1C < width_B[:, None]
    size_B = jax.random.randint(keys[0], width_B.shape, 0, width_B + 1)
    difference_BC = jnp.where(place_1C < size_B[:, None], jax.random.randint(keys[1], shape_BC, 0, 10), 0)
    third_BC = jnp.where(inside_BC, jax.random.randint(keys[2], shape_BC, 0, 10), 0)
    if hard:
        length_B = jax.random.randint(keys[3], width_B.shape, 1, width_B + 1)
        start_B = jax.random.randint(keys[4], width_B.shape, 0, width_B - length_B + 1)
        run_BC = (start_B[:, None] <= place_1C) & (place_1C < (start_B + length_B)[:, None])
        nine_B = 9 * jax.random.randint(keys[5], width_B.shape, 0, 2)
        third_BC = jnp.where(run_BC, nine_B[:, None], third_BC)
    second_BC, borrow_B = add(third_BC, difference_BC, -1)
    first_BC, other_B = add(second_BC, difference_BC, -1)
    terms_NBC, fits_NB = [first_BC, second_BC, third_BC], 3 * [(borrow_B == 0) & (other_B == 0)]
    for _ in range(terms - 3):
        next_BC, carry_B = add(terms_NBC[-1], difference_BC)
        terms_NBC.append(next_BC)
        fits_NB.append(fits_NB[-1] & (carry_B == 0) & ~((next_BC > 0) & ~inside_BC).any(1))
    digits_BNC = jnp.stack(terms_NBC, axis=1)
    # 99 .. 9 minus each term is a progression downwards.
    down_B11 = jax.random.bernoulli(keys[6], 0.5, (len(width_B), 1, 1))
    digits_BNC = jnp.where(down_B11 & inside_BC[:, None], 9 - digits_BNC, digits_BNC)
    return Numbers(digits_BNC, width_B, jnp.stack(fits_NB, axis=1))


def chains(key, width_B, places, terms):
    """Rows of terms of the widths given whose first two terms have a run of open places, its length and place uniform.

    How often b changes along the run is drawn for each row. All other digits are random. The rest is as in `draw`.
    """
    keys = jax.random.split(key, 7)
    shape_BC, place_1C = (len(width_B), places), jnp.arange(places, dtype=jnp.int32)[None]
    inside_BC = place_1C < width_B[:, None]
    random_2BC = jax.random.randint(keys[0], (2, *shape_BC), 0, 10)
    often_B1 = jax.random.uniform(keys[1], (len(width_B), 1))
    changes_BC = (jax.random.uniform(keys[2], shape_BC) < often_B1).astype(jnp.int32)
    b_BC = jnp.cumsum(changes_BC[:, ::-1], axis=1)[:, ::-1] % 2  # from the highest place down
    above_BC = jnp.roll(b_BC, -1, axis=1)  # of the highest place it is that of the lowest, as good as any
    ends_BC = jax.random.bernoulli(keys[3], _ENDS, shape_BC).astype(jnp.int32)
    a_BC, r_BC = above_BC ^ ends_BC, random_2BC[0] % 5
    length_B = jax.random.randint(keys[4], width_B.shape, 1, width_B + 1)
    start_B = jax.random.randint(keys[5], width_B.shape, 0, width_B - length_B + 1)
    run_BC = (start_B[:, None] <= place_1C) & (place_1C < (start_B + length_B)[:, None])
    second_BC = jnp.where(inside_BC, jnp.where(run_BC, 5 * a_BC + r_BC, random_2BC[0]), 0)
    first_BC = jnp.where(inside_BC, jnp.where(run_BC, 2 * r_BC + b_BC, random_2BC[1]), 0)
    terms_NBC, fits_NB = [first_BC, second_BC], 2 * [jnp.ones(len(width_B), bool)]
    for _ in range(terms - 2):
        double_BC, carry_B = add(terms_NBC[-1], terms_NBC[-1])
        next_BC, borrow_B = add(double_BC, terms_NBC[-2], -1)
        terms_NBC.append(next_BC)
        fits_NB.append(fits_NB[-1] & (carry_B + borrow_B == 0) & ~((next_BC > 0) & ~inside_BC).any(1))
    return Numbers(jnp.stack(terms_NBC, axis=1), width_B, jnp.stack(fits_NB, axis=1))


@partial(jax.jit, static_argnames="order")
def encode(numbers, order):
    """The text of rows as a Batch of shape (B, N (C + 1) - 1); the first two terms, which are given, weigh nothing."""
    digits_BNC, width_B, fits_BN = numbers
    B, N, C = digits_BNC.shape
    position_1T, period_B1 = jnp.arange(N * (C + 1) - 1, dtype=jnp.int32)[None], width_B[:, None] + 1
    place_BT, number_BT = position_1T % period_B1, jnp.minimum(position_1T // period_B1, N - 1)
    index_BT = place_BT if order == "lsb" else width_B[:, None] - 1 - place_BT
    index_BT = number_BT * C + jnp.clip(index_BT, 0, C - 1)
    digit_BT = jnp.take_along_axis(digits_BNC.reshape(B, N * C), index_BT, axis=1)
    space_BT, inside_BT = place_BT == width_B[:, None], position_1T < N * period_B1 - 1
    tokens_BT = jnp.where(inside_BT, jnp.where(space_BT, SPACE, digit_BT), 0)
    term_BT = jnp.minimum(number_BT + space_BT.astype(jnp.int32), N - 1)
    counts_BT = inside_BT & (term_BT >= 2) & jnp.take_along_axis(fits_BN, term_BT, axis=1)
    return Batch(tokens_BT, counts_BT.astype(jnp.float32), term_BT)


def test_rows(key, width, count, terms, kind=draw):
    """`count` rows of one width all of whose terms fit: Numbers of numpy arrays, the same for the same key.

    kind: `draw`, or a function like it.
    """
    kept, found, attempt, draw_rows = [], 0, 0, jax.jit(kind, static_argnums=(2, 3))
    while found < count:
        rows = draw_rows(jax.random.fold_in(key, attempt), jnp.full(4 * count, width, jnp.int32), width, terms)
        fitting = np.asarray(rows.fits_BN[:, -1])
        kept.append(jax.tree.map(lambda leaf, fitting=fitting: np.asarray(leaf)[fitting], rows))
        found, attempt = found + int(fitting.sum()), attempt + 1
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *kept)


def value(digits_C):
    """The number that digits stand for, as a Python integer."""
    return sum(int(digit) * 10**place for place, digit in enumerate(digits_C))


def render(terms, width, order):
    """Terms, Python integers, as text of a width and order."""
    texts = (f"{term:0{width}d}" for term in terms)
    return " ".join(text if order == "msb" else text[::-1] for text in texts)
