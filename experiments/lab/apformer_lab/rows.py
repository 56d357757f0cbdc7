"""Rows of terms that follow a rule, computed digit by digit, for the tasks of the laboratory.

A rule gives the term after y and x: z = a x + b y + c. Its digits are computed from the lowest up, with carries,

    t_j = a x_j + b y_j + c_j      z_j = t_j mod base      c_{j+1} = floor(t_j / base)      c_0 = c

so that terms may have any number of digits. A format says how rows are written: base, order of the digits, and the
heading that names rule and base.

A place is *open* if its carry out depends on its carry in. With random digits, few places are open. A place of
z = 2x - y is open if u = 2 x_j - y_j is 0, -1, base - 1 or base, a place of x + y if x_j + y_j is base - 1, and a place
of 2x if x_j is the middle digit of an odd base. Above a run of open places, a digit may depend on a place far below.
For 2x - y, write u = a base - b with a and b in 0, 1. The carry out is -1 or 0 if a = 0, and 0 or 1 if a = 1; it
depends on whether the carry in is -1 (b = 0) or 1 (b = 1). So if the a of a place is the b of the place above, the
place above depends on what comes in here; otherwise its dependence ends here, and another begins. Rows of the kind
`runs` have a run of open places.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer_lab.proof.strings import RULES

KINDS = ("random", "runs")
SPLITS = ("train", "validation", "test")
MOST = 1000  # digits of a term in training
ANSWERS = 0.25  # share of the places in a run that end a dependence and begin another
ATTEMPTS = 100


@dataclass(frozen=True)
class Format:
    """Format of the rows of a task: how they are written, and which there are."""

    digits: int
    """Digits of each term, or of the widest."""
    names: tuple[str, ...] = ("progression",)
    """Name of each rule in `numbers`; each row has one rule."""
    numbers: tuple[tuple[int, int, int], ...] = (RULES["progression"],)
    """(a, b, c) of each rule."""
    bases: tuple[int, ...] = (10,)
    """Bases; each row has one."""
    characters: str = "0123456789 "
    """Text of each token; the digits come first."""
    lowest_first: bool = True
    """Whether the least significant digit of a term is written first."""
    headings: tuple[tuple[int, ...], ...] = ()
    """Tokens that a row begins with, for each rule and base; empty if rows begin with their first term."""
    widths: bool = True
    """Whether each row has a width of its own, from 1 to `digits`."""
    wraps: bool = True
    """Whether terms are taken modulo base^D; else a row ends where the next term has more digits."""
    more: int = 0
    """Number of extra digits of the last term."""
    split: bool = False
    """Whether pairs of neighbouring terms are split into train, validation and test."""

    @property
    def space(self) -> int:
        """The token that ends a term."""
        return self.characters.index(" ")

    @property
    def head(self) -> int:
        """The number of tokens before the first term."""
        return len(self.headings[0]) + 1 if self.headings else 0

    def length(self, terms: int, width: int) -> int:
        """Return the number of tokens of a row."""
        return self.head + terms * (width + 1) - 1 + self.more

    def given(self, width: int) -> int:
        """Return the number of given tokens: two terms, and the space after them if a wider term follows."""
        return self.head + 2 * (width + 1) - 1 + min(1, self.more)

    def text(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens."""
        return "".join(self.characters[token] for token in tokens)

    def sample(self) -> str:
        """Return an example of two terms, for a message."""
        return sample_text(self, 2, 3 if self.widths else self.digits, len(self.bases) - 1)

    def pairs(self) -> list[tuple[str, int]]:
        """Return all pairs (rule, base), in the order of their numbers."""
        return [(name, base) for name in self.names for base in self.bases]


class Rows(NamedTuple):
    """Rows of N terms."""

    digits_BNC: jax.Array  # int32, least significant first
    width_B: jax.Array  # digits of a term
    pair_B: jax.Array  # number of the rule and base
    fits_BN: jax.Array  # whether a term, and all before it, fit the width


class Batch(NamedTuple):
    """Tokens of rows, and which of them count."""

    tokens_BT: jax.Array  # int32; 0 beyond a row's end
    weights_BT: jax.Array  # float32; 1 for the characters of the third and later terms that fit
    term_BT: jax.Array  # int32; index of the term of each target: a space belongs to the term after it


def draw(
    key: jax.Array,
    form: Format,
    width_B: jax.Array,
    places: int,
    terms: int,
    kind: str = "random",
    pair_B: jax.Array | None = None,
) -> Rows:
    """Draw rows of the given widths. Pure; arguments that are no arrays are static under jit.

    Args:
        key: Random key.
        form: Format of the rows.
        width_B: Digits of a term of each row.
        places: Size of the axis of digits, at least the largest width.
        terms: Number of terms.
        kind: random, or runs, for a run of open places, its length and place drawn uniformly.
        pair_B: Number of the rule and base of each row; without it, a base is drawn in proportion to its size.
    """
    keys, B = jax.random.split(key, 8), len(width_B)
    if pair_B is None:
        bases = jnp.asarray(form.bases, jnp.int32)
        pair_B = jax.random.choice(keys[1], len(form.bases), (B,), p=bases / bases.sum()).astype(jnp.int32)
        pair_B += len(form.bases) * jax.random.randint(keys[2], (B,), 0, len(form.names))
    base_B = jnp.asarray(form.bases, jnp.int32)[pair_B % len(form.bases)]
    given_B2C = jax.random.randint(keys[0], (B, 2, places), 0, base_B[:, None, None])
    if kind == "runs":
        open_B2C = _draw_open(keys[3:6], given_B2C, _rule(form, pair_B), base_B)
        length_B = jax.random.randint(keys[6], (B,), 1, width_B + 1)
        start_B = jax.random.randint(keys[7], (B,), 0, width_B - length_B + 1)
        place_1C = jnp.arange(places, dtype=jnp.int32)[None]
        run_BC = (start_B[:, None] <= place_1C) & (place_1C < (start_B + length_B)[:, None])
        given_B2C = jnp.where(run_BC[:, None], open_B2C, given_B2C)
    return follow(given_B2C, form, width_B, pair_B, base_B, terms)


def _rule(form: Format, pair_B: jax.Array) -> jax.Array:
    """Return (a, b, c) of rows: (3, B)."""
    return jnp.asarray(form.numbers, jnp.int32)[pair_B // len(form.bases)].T


def _draw_open(keys: jax.Array, given_B2C: jax.Array, rule_3B: jax.Array, base_B: jax.Array) -> jax.Array:
    """Return digits (y, x) with only open places, where the rule has such: (B, 2, C)."""
    (y_BC, x_BC), (a_B1, b_B1, _), base_B1 = given_B2C.swapaxes(0, 1), rule_3B[:, :, None], base_B[:, None]
    often_B1 = jax.random.uniform(keys[0], (len(x_BC), 1))
    changes_BC = (jax.random.uniform(keys[1], x_BC.shape) < often_B1).astype(jnp.int32)
    b_BC = jnp.cumsum(changes_BC[:, ::-1], axis=1)[:, ::-1] % 2  # b, from the highest place down
    a_BC = jnp.roll(b_BC, -1, axis=1) ^ jax.random.bernoulli(keys[2], ANSWERS, x_BC.shape).astype(jnp.int32)
    least_BC = a_BC * ((base_B1 - b_BC + 1) // 2)  # least x for which y is a digit
    below_BC = jnp.where(a_BC > 0, base_B1, (base_B1 - 1 - b_BC) // 2 + 1)
    of_progression_BC = least_BC + x_BC % jnp.maximum(below_BC - least_BC, 1)
    x_BC = jnp.where(b_B1 == 0, (base_B1 - 1) // 2, jnp.where(b_B1 < 0, of_progression_BC, x_BC))
    open_BC = jnp.where(b_B1 < 0, 2 * x_BC - a_BC * base_B1 + b_BC, base_B1 - 1 - x_BC)
    valid_BC = (open_BC >= 0) & (open_BC < base_B1) & (b_B1 != 0) & ((b_B1 > 0) == (a_B1 == 1))
    return jnp.stack([jnp.where(valid_BC, open_BC, y_BC), x_BC], axis=1)


def follow(
    given_B2C: jax.Array, form: Format, width_B: jax.Array, pair_B: jax.Array, base_B: jax.Array, terms: int
) -> Rows:
    """Return rows that continue two given terms."""
    (a_B, b_B, c_B), more = _rule(form, pair_B), form.more
    place_1C = jnp.arange(given_B2C.shape[2] + more, dtype=jnp.int32)[None]
    inside_BC, beyond_BC = place_1C < width_B[:, None], place_1C >= width_B[:, None] + more
    given_B2C = jnp.pad(given_B2C, ((0, 0), (0, 0), (0, more)))

    def place(carry_B: jax.Array, digits: tuple) -> tuple:
        t_B = a_B * digits[0] + b_B * digits[1] + carry_B
        return t_B // base_B, t_B % base_B

    terms_NBC = [jnp.where(inside_BC, given_B2C[:, n], 0) for n in (0, 1)]
    fits_NB = 2 * [jnp.ones(len(width_B), bool)]
    for _ in range(terms - 2):
        last_B, z_CB = jax.lax.scan(place, c_B, (terms_NBC[-1].T, terms_NBC[-2].T))
        short_B = (last_B == 0) & ~(beyond_BC & (z_CB.T > 0)).any(1)
        fits_NB.append(fits_NB[-1] & (short_B | form.wraps))
        terms_NBC.append(jnp.where(beyond_BC, 0, z_CB.T))
    return Rows(jnp.stack(terms_NBC, axis=1), width_B, pair_B, jnp.stack(fits_NB, axis=1))


def split_of(pair_BC: jax.Array) -> jax.Array:
    """Return the split of pairs of terms, 0 train, 1 validation, 2 test, about 80 : 10 : 10: (B,).

    It is a hash of all digits: a polynomial modulo 2^32, and the finalizer of MurmurHash3 (Appleby, 2008).
    """
    power_C = np.multiply.accumulate(np.full(pair_BC.shape[-1], 0x9E3779B1, np.uint32))
    bits = (pair_BC.astype(jnp.uint32) * power_C[None]).sum(1, dtype=jnp.uint32) + np.uint32(0x9E3779B9)
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return jnp.maximum(((bits ^ (bits >> 16)) % 10).astype(jnp.int32) - 7, 0)


def of_split(rows: Rows, form: Format, split: str) -> Rows:
    """Return rows in which only the terms of a split are marked as fitting.

    A training row ends before its first pair of neighbours of another split, so that training has no such pair. A row
    of another split begins with a pair of that split.
    """
    if not form.split:
        return rows
    digits_BNC = rows.digits_BNC[..., : rows.digits_BNC.shape[2] - form.more]
    terms = 2 if form.more else digits_BNC.shape[1]  # a wider last term is in no pair
    pair_BNC = jnp.concatenate([digits_BNC[:, : terms - 1], digits_BNC[:, 1:terms]], axis=-1)
    of_BN = split_of(pair_BNC.reshape(-1, pair_BNC.shape[-1])).reshape(pair_BNC.shape[:2]) == SPLITS.index(split)
    if split == "train":
        of_BN = jnp.cumprod(of_BN, axis=1) > 0
        of_BN = jnp.concatenate([of_BN[:, :1], of_BN], axis=1)
        of_BN = jnp.pad(of_BN, ((0, 0), (0, rows.fits_BN.shape[1] - terms)), mode="edge")
    return rows._replace(fits_BN=rows.fits_BN & (of_BN if split == "train" else of_BN[:, :1]))


@partial(jax.jit, static_argnames="form")
def encode(rows: Rows, form: Format) -> Batch:
    """Encode rows as a Batch; headings and the first two terms, which are given, have weight 0."""
    digits_BNC, width_B, pair_B, fits_BN = rows
    B, N, C = digits_BNC.shape
    at_1T = jnp.arange(form.length(N, C - form.more), dtype=jnp.int32)[None] - form.head
    period_B1 = width_B[:, None] + 1
    term_BT = jnp.clip(at_1T // period_B1, 0, N - 1)
    place_BT = at_1T - term_BT * period_B1
    last_BT = term_BT == N - 1
    width_BT = width_B[:, None] + form.more * last_BT.astype(jnp.int32)
    index_BT = place_BT if form.lowest_first else width_BT - 1 - place_BT
    index_BT = term_BT * C + jnp.clip(index_BT, 0, C - 1)
    digit_BT = jnp.take_along_axis(digits_BNC.reshape(B, N * C), index_BT, axis=1)
    space_BT, inside_BT = place_BT == width_BT, ~last_BT | (place_BT < width_BT)
    tokens_BT = jnp.where(inside_BT, jnp.where(space_BT, form.space, digit_BT), 0)
    if form.headings:
        headings = jnp.asarray([(*heading, form.space) for heading in form.headings], jnp.int32)
        tokens_BT = tokens_BT.at[:, : form.head].set(headings[pair_B])
    term_BT = jnp.minimum(term_BT + space_BT.astype(jnp.int32), N - 1)
    predicted_BT = inside_BT & (at_1T >= form.given(width_B[:, None]) - form.head)
    counts_BT = predicted_BT & jnp.take_along_axis(fits_BN, term_BT, axis=1)
    return Batch(tokens_BT, counts_BT.astype(jnp.float32), term_BT)


def held_out(
    key: jax.Array, form: Format, width: int, count: int, terms: int, kind: str = "random", split: str = "test"
) -> Rows:
    """Return up to `count` rows of one width for each rule and base, with terms that all fit, as numpy arrays."""
    pairs, factor = len(form.pairs()), 20 if form.split else 1 if form.wraps else 4
    pair_B = jnp.tile(jnp.arange(pairs, dtype=jnp.int32), factor * count)
    batches = []
    for attempt in range(ATTEMPTS):
        width_B, row_key = jnp.full(len(pair_B), width, jnp.int32), jax.random.fold_in(key, attempt)
        rows = _draw_of_split(row_key, form, width_B, width, terms, kind, pair_B, split)
        fits_B = np.asarray(rows.fits_BN[:, -1])
        batches.append(jax.tree.map(lambda leaf, fits_B=fits_B: np.asarray(leaf)[fits_B], rows))
        found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
        of_pair = [np.flatnonzero(found.pair_B == pair)[:count] for pair in range(pairs)]
        if min(map(len, of_pair)) == count:
            break
    chosen = np.concatenate(of_pair)
    return jax.tree.map(lambda leaf: leaf[chosen], found)


@partial(jax.jit, static_argnums=(1, 3, 4, 5, 7))
def _draw_of_split(
    key: jax.Array, form: Format, width_B: jax.Array, places: int, terms: int, kind: str, pair_B: jax.Array, split: str
) -> Rows:
    return of_split(draw(key, form, width_B, places, terms, kind, pair_B), form, split)


def next_term(form: Format, pair: int, y: list[int], x: list[int]) -> tuple[list[int], bool]:
    """Return the digits of the term after y and x, least significant first, and whether it fits."""
    (a, b, carry), base, z = form.numbers[pair // len(form.bases)], form.bases[pair % len(form.bases)], []
    more = [0] * form.more
    for x_j, y_j in zip(x + more, y + more, strict=True):
        carry, digit = divmod(a * x_j + b * y_j + carry, base)
        z.append(digit)
    return z, form.wraps or carry == 0


def row_text(form: Format, pair: int, terms: list[list[int]]) -> str:
    """Return the text of a row of terms, each a list of digits, least significant first."""
    head = [form.text(form.headings[pair])] if form.headings else []
    orders = [term if form.lowest_first else term[::-1] for term in terms]
    return " ".join(head + [*map(form.text, orders)])


def sample_text(form: Format, terms: int, width: int, pair: int = 0, numbers: tuple[int, int] = (3, 5)) -> str:
    """Return a row that begins with two numbers, for a message or an example."""
    base = form.bases[pair % len(form.bases)]
    row = [[number // base**place % base for place in range(width)] for number in numbers]
    while len(row) < terms:
        row.append(next_term(form, pair, *row[-2:])[0])
    return row_text(form, pair, row)
