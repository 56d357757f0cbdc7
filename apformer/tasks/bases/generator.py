"""Rows of terms by three rules in any base from 2 to 16, place by place, since int32 ends at nine decimal digits.

After the terms y and x comes z = a x + b y modulo base^D. Its digits follow from the lowest up, with carries c,

    t_j = a x_j + b y_j + c_j      z_j = t_j mod base      c_{j+1} = floor(t_j / base)      c_0 = 0

    progression    z = 2x - y      c in -1, 0, 1
    fibonacci      z = x + y       c in 0, 1
    doubling       z = 2x          c in 0, 1

Every row has a rule, a base and a width of its own. Its first two terms are drawn, digit by digit. Of random digits,
few pass on what is carried into them; in `hard` rows many do.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import USAGE, UserError
from apformer.tasks.bases.alphabet import DIGITS, HEADING, RULES, SPACE, heading, rule_token
from apformer.tasks.digits.generator import MOST, Batch
from apformer.tasks.recurrences.rules import NAMES

CARRIES = {"progression": (-1, 0, 1), "fibonacci": (0, 1), "doubling": (0, 1)}


@dataclass(frozen=True)
class Config:
    """The generator of rows in many bases."""

    digits: int = 4
    """Most digits of a term in training. Each row has a width of its own."""
    bases: tuple[int, ...] = tuple(range(2, 17))
    """Bases, of which each row has one."""
    rules: tuple[str, ...] = tuple(RULES)
    """Rules, of which each row has one: progression, fibonacci, doubling."""


class Rows(NamedTuple):
    """Rows of N terms."""

    digits_BNC: jax.Array  # int32, least significant first
    width_B: jax.Array  # digits of each term
    base_B: jax.Array
    rule_B: jax.Array  # its place among the rules of the Config


def check(cfg):
    """Refuses a Config that no generator can follow. Raises UserError (exit USAGE) that names the flag."""
    if not 1 <= cfg.digits <= MOST:
        raise UserError(f"--digits {cfg.digits} does not fit: give 1 to {MOST} digits", USAGE)
    for base in cfg.bases:
        if not 2 <= base <= len(DIGITS):
            raise UserError(f"--bases {base} has no digits of its own: give bases from 2 to {len(DIGITS)}", USAGE)
    for rule in cfg.rules:
        if rule not in RULES:
            raise UserError(f"--rules {rule} is unknown: give some of {', '.join(RULES)}", USAGE)
    for flag, values in (("bases", cfg.bases), ("rules", cfg.rules)):
        if not values or len({*values}) < len(values):
            raise UserError(f"--{flag} {' '.join(map(str, values))} does not fit: give each once, at least one", USAGE)


def pairs(cfg):
    """[(rule, base)], rule by rule."""
    return [(rule, base) for rule in cfg.rules for base in cfg.bases]


def draw(key, cfg, width_B, places, terms, pair_B=None, hard=False):
    """Rows of the widths given. A base is drawn in proportion to itself, a rule uniformly, unless pair_B numbers both.

    hard: half of the places are open, as far as they can be. Pure; cfg, places (at least the largest width), terms and
    hard are static under jit.
    """
    keys, B, C = jax.random.split(key, 5), len(width_B), places
    bases = jnp.asarray(cfg.bases, jnp.int32)
    if pair_B is None:
        base_B = jax.random.choice(keys[0], bases, (B,), p=bases / bases.sum())
        rule_B = jax.random.randint(keys[1], (B,), 0, len(cfg.rules))
    else:
        base_B, rule_B = bases[pair_B % len(bases)], pair_B // len(bases)
    given_2BC = jax.random.randint(keys[2], (2, B, C), 0, base_B[None, :, None])
    if hard:
        open_2BC = opened(keys[3], given_2BC, *coefficients(cfg, rule_B), base_B)
        given_2BC = jnp.where(jax.random.bernoulli(keys[4], 0.5, (1, B, C)), open_2BC, given_2BC)
    return follow(given_2BC, cfg, width_B, base_B, rule_B, terms)


def coefficients(cfg, rule_B):
    """(a, b) of the rules of rows: z = a x + b y."""
    return tuple(jnp.asarray([NAMES[rule][i] for rule in cfg.rules], jnp.int32)[rule_B] for i in (0, 1))


def opened(key, given_2BC, a_B, b_B, base_B):
    """Digits of y and x with which places are open: what they pass on depends on what is carried into them.

    So it is where a x + b y is -1, 0, base - 1 or base. Where no y does it y stays; in doubling x is the middle digit.
    """
    (y_BC, x_BC), (a_B1, b_B1, base_B1) = given_2BC, (leaf_B[:, None] for leaf_B in (a_B, b_B, base_B))
    one_BC, high_BC = jax.random.randint(key, (2, *y_BC.shape), 0, 2)
    for upper_BC in (high_BC, 1 - high_BC):
        sum_BC = one_BC - 1 + upper_BC * base_B1
        sum_BC = jnp.where(b_B1 > 0, base_B1 - 1, sum_BC)  # with no carry of -1, the others are not open
        open_BC = b_B1 * (sum_BC - a_B1 * x_BC)  # b is 1, -1 or 0
        y_BC = jnp.where((b_B1 != 0) & (open_BC >= 0) & (open_BC < base_B1), open_BC, y_BC)
    return jnp.stack([y_BC, jnp.where(b_B1 == 0, (base_B1 - 1) // 2, x_BC)])


def follow(given_2BC, cfg, width_B, base_B, rule_B, terms):
    """The Rows that begin with two terms each."""
    a_B, b_B = coefficients(cfg, rule_B)
    inside_BC = jnp.arange(given_2BC.shape[2], dtype=jnp.int32)[None] < width_B[:, None]

    def place(carry_B, digits):
        t_B = a_B * digits[0] + b_B * digits[1] + carry_B
        return t_B // base_B, t_B % base_B

    terms_NBC = [jnp.where(inside_BC, term_BC, 0) for term_BC in given_2BC]
    for _ in range(terms - 2):
        x_BC, y_BC = terms_NBC[-1], terms_NBC[-2]
        _, z_CB = jax.lax.scan(place, jnp.zeros_like(base_B), (x_BC.T, y_BC.T))
        terms_NBC.append(jnp.where(inside_BC, z_CB.T, 0))
    return Rows(jnp.stack(terms_NBC, axis=1), width_B, base_B, rule_B)


def length(terms, width):
    """Tokens of a row."""
    return HEADING + terms * (width + 1)


@partial(jax.jit, static_argnames="cfg")
def encode(rows, cfg):
    """The text of rows as a Batch; the heading and the first two terms, which are given, weigh nothing."""
    digits_BNC, width_B, base_B, rule_B = rows
    B, N, C = digits_BNC.shape
    position_1T, period_B1 = jnp.arange(length(N, C), dtype=jnp.int32)[None] - HEADING - 1, width_B[:, None] + 1
    place_BT, term_BT = position_1T % period_B1, jnp.clip(position_1T // period_B1, 0, N - 1)
    index_BT = term_BT * C + jnp.clip(place_BT, 0, C - 1)
    digit_BT = jnp.take_along_axis(digits_BNC.reshape(B, N * C), index_BT, axis=1)
    space_BT, inside_BT = place_BT == width_B[:, None], position_1T < N * period_B1 - 1
    tokens_BT = jnp.where(inside_BT, jnp.where(space_BT, SPACE, digit_BT), 0)
    rule_B = jnp.asarray([rule_token(rule) for rule in cfg.rules], jnp.int32)[rule_B]
    named_B3 = jnp.stack([rule_B, base_B - 1, jnp.full_like(base_B, SPACE)], axis=1)
    tokens_BT = tokens_BT.at[:, : HEADING + 1].set(named_B3)
    term_BT = jnp.minimum(term_BT + space_BT.astype(jnp.int32), N - 1)
    counts_BT = inside_BT & (position_1T >= 0) & (term_BT >= 2)
    return Batch(tokens_BT, counts_BT.astype(jnp.float32), term_BT)


def after(rule, base, y_C, x_C):
    """The digits of the term after y and x, least significant first, in plain whole numbers."""
    a, b, _ = NAMES[rule]
    value_y, value_x = (sum(int(digit) * base**place for place, digit in enumerate(term_C)) for term_C in (y_C, x_C))
    z = (a * value_x + b * value_y) % base ** len(x_C)
    return np.array([z // base**place % base for place in range(len(x_C))])


def render(rule, base, terms, width):
    """Terms, Python integers, as the text of a row."""
    digits = ("".join(DIGITS[term // base**place % base] for place in range(width)) for term in terms)
    return " ".join([heading(rule, base), *digits])
