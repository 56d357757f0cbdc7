"""Linear recurrences as text: 03 05 08 13 21, or with the number of the rule in front, 1 03 05 08 13 21.

    x_n = a x_{n-1} + b x_{n-2} + c  modulo 10^D          D digits a term, a space between two terms

A term depends on its rule and on the two terms before it, and on nothing else. So what is split is the pairs (y, z) of
terms: a hash makes each one train, validation or test, about 80 : 10 : 10. **A training row ends before the first pair
of another split.** So no validation or test pair ever stands as two neighbours in a training row, by any rule; a
held-out row begins with a pair of its split, and what follows may be any pair.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.tasks.batch import Batch
from apformer.tasks.recurrences import rules
from apformer.tokenizers.digits import VOCABULARY

SPLITS = ("train", "validation", "test")
SPACE = VOCABULARY[" "]
ATTEMPTS = 100  # draws of a row; after them the row is empty


@dataclass(frozen=True)
class Config:
    """The generator of recurrences."""

    digits: int = 2
    """Digits D of a term."""
    rules: tuple[str, ...] = ("fibonacci",)
    """Rules: fibonacci, doubling, alternating, progression, or numbers a,b,c for a x_{n-1} + b x_{n-2} + c."""
    named: bool = True
    """Begin each row with the number of its rule. Without it the terms alone tell; one rule is never named."""
    terms: int = 8
    """Most terms of a row."""


class Rows(NamedTuple):
    rule_B: jax.Array  # int32, as are the others; counted from 0
    first_B: jax.Array
    second_B: jax.Array
    terms_B: jax.Array  # 0 for a row that is empty


def check(cfg):
    """Refuse a Config that no generator can follow. Raises UserError (exit USAGE) that names the flag."""
    require("digits", 1 <= cfg.digits <= 4, cfg, "1 to 4")
    require("terms", given_terms(cfg) + 1 <= cfg.terms <= 1000, cfg, f"{given_terms(cfg) + 1} to 1000")
    if not 1 <= len(cfg.rules) <= 9:
        raise UserError(f"--rules has {len(cfg.rules)} rules: give 1 to 9", USAGE)
    if len({rules.read(rule) for rule in cfg.rules}) < len(cfg.rules):
        raise UserError(f"--rules {' '.join(cfg.rules)} gives a rule twice: give each once", USAGE)


def is_named(cfg):
    """Whether a row begins with the number of its rule."""
    return cfg.named and len(cfg.rules) > 1


def head(cfg):
    """Characters before the first term."""
    return 2 if is_named(cfg) else 0


def given_terms(cfg):
    """How many terms a reader needs before the next can be known: the third tells the rule where nothing names it."""
    return 3 if len(cfg.rules) > 1 and not cfg.named else 2


def length(cfg, terms):
    """Characters of a row of `terms` terms."""
    return head(cfg) + terms * (cfg.digits + 1) - 1


def count(cfg):
    """How many rows there are: every rule with every first two terms."""
    return len(cfg.rules) * 100**cfg.digits


def numbered(number_B, cfg, terms):
    """Rows by their number, 0 .. count - 1."""
    pair_B = number_B % 100**cfg.digits
    top = 10**cfg.digits
    return Rows(number_B // 100**cfg.digits, pair_B // top, pair_B % top, jnp.full_like(number_B, terms))


def split_of(before, last, digits):
    """Split of each pair of neighbours: 0 train, 1 validation, 2 test. int32 arrays of one shape, and so is the result.

    The hash is the finalizer of MurmurHash3 (Appleby, 2008).
    """
    bits = (before * 10**digits + last).astype(jnp.uint32) + np.uint32(0x9E3779B9)
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return jnp.maximum(((bits ^ (bits >> 16)) % 10).astype(jnp.int32) - 7, 0)


def values(rows, cfg, terms):
    """The first `terms` terms of rows: (B, N) int32, whatever terms_B says."""
    rule_B3 = jnp.asarray([rules.read(rule) for rule in cfg.rules], jnp.int32)[rows.rule_B]

    def step(pair, _):
        new_B = rules.after(rule_B3.T, *pair, 10**cfg.digits)
        return (pair[1], new_B), new_B

    first_B, second_B = jnp.asarray(rows.first_B), jnp.asarray(rows.second_B)
    _, rest_NB = jax.lax.scan(step, (first_B, second_B), length=terms - 2)
    return jnp.concatenate([first_B[:, None], second_B[:, None], rest_NB.T], axis=1)


def known(value_BN, cfg):
    """Which terms the text before them fixes: (B, N) bool. The first two are never known.

    Where nothing names the rule, a term is known if all rules that the terms before it follow agree on it.
    """
    known_BN = jnp.ones(value_BN[:, 2:].shape, bool)
    if given_terms(cfg) > 2:
        for rule in map(rules.read, cfg.rules):
            wrong_BN = rules.after(rule, value_BN[:, :-2], value_BN[:, 1:-1], 10**cfg.digits) != value_BN[:, 2:]
            wrong_before_BN = jnp.cumsum(wrong_BN, axis=1, dtype=jnp.int32) - wrong_BN.astype(jnp.int32) > 0
            known_BN &= ~wrong_BN | wrong_before_BN
    return jnp.pad(known_BN, ((0, 0), (2, 0)))


def trained(value_BN, digits):
    """Which steps, from two terms to the third, training rows can hold: (B, N - 2) bool; both their pairs are train."""
    train_BN = split_of(value_BN[:, :-1], value_BN[:, 1:], digits) == 0
    return train_BN[:, :-1] & train_BN[:, 1:]


def draw(key, cfg, size, split, terms):
    """Rows of a split, uniformly of those with at least three terms. Pure; all but key are static under jit."""

    def attempt(state):
        number, rows = state
        number_B = jax.random.randint(jax.random.fold_in(key, number), (size,), 0, count(cfg))
        fresh = numbered(number_B, cfg, terms)
        if split == "train":
            steps_BN = trained(values(fresh, cfg, terms), cfg.digits)
            steps_B = jnp.cumprod(steps_BN.astype(jnp.int32), axis=1).sum(1, dtype=jnp.int32)
            fresh = fresh._replace(terms_B=jnp.where(steps_B > 0, steps_B + 2, 0))
        else:
            ours_B = split_of(fresh.first_B, fresh.second_B, cfg.digits) == SPLITS.index(split)
            fresh = fresh._replace(terms_B=jnp.where(ours_B, terms, 0))
        return number + 1, jax.tree.map(lambda old_B, new_B: jnp.where(rows.terms_B > 0, old_B, new_B), rows, fresh)

    nothing_B = jnp.zeros(size, jnp.int32)
    more = lambda state: (state[1].terms_B == 0).any() & (state[0] < ATTEMPTS)  # noqa: E731
    return jax.lax.while_loop(more, attempt, (jnp.int32(0), Rows(*[nothing_B] * 4)))[1]


@partial(jax.jit, static_argnames=("cfg", "terms"))
def encode(rows, cfg, terms):
    """The text of the first `terms` terms as a Batch; only the characters of known terms count.

    A space is of the term after it. Arrays of shape (B, length(cfg, terms)).
    """
    value_BN, place_C = values(rows, cfg, terms), jnp.asarray(10 ** np.arange(cfg.digits)[::-1], jnp.int32)
    digits_BNC = value_BN[:, :, None] // place_C[None, None] % 10
    text_BNC = jnp.pad(digits_BNC, ((0, 0), (0, 0), (0, 1)), constant_values=SPACE)
    text_BT = text_BNC.reshape(len(value_BN), -1)[:, :-1]
    if is_named(cfg):
        name_BT = jnp.stack([rows.rule_B + 1, jnp.full_like(rows.rule_B, SPACE)], axis=1)
        text_BT = jnp.concatenate([name_BT, text_BT], axis=1)
    inside_BN = jnp.arange(terms, dtype=jnp.int32)[None] < rows.terms_B[:, None]
    term_T = term_of(cfg, terms)
    tokens_BT = jnp.where(inside_BN[:, term_T], text_BT, 0)
    return Batch(tokens_BT, (inside_BN & known(value_BN, cfg))[:, term_T].astype(jnp.float32))


def term_of(cfg, terms):
    """The number of the term, from 0, that each character of a row is of; what names the rule is of the first."""
    return np.maximum(0, np.arange(1 - head(cfg), length(cfg, terms) + 1 - head(cfg)) // (cfg.digits + 1))


def render(rule, first, second, terms, cfg):
    """A row as text; rule: its number from 0."""
    line = [first, second]
    while len(line) < terms:
        line.append(rules.after(rules.read(cfg.rules[rule]), *line[-2:], 10**cfg.digits))
    return " ".join([str(rule + 1)] * is_named(cfg) + [f"{term:0{cfg.digits}d}" for term in line])
