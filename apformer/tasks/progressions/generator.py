"""Arithmetic progressions written as text: 007 010 013 016 019.

A progression is first + k * difference for k = 0 .. terms - 1. Every term has D digits, and one space separates terms.
The generator draws, one after the other and each uniformly,

    difference  from  min_difference .. max_difference,
    terms       from  min_terms .. min(max_terms, 1 + floor((10^D - 1) / |difference|)),
    first       from  the numbers that keep every term within 0 .. 10^D - 1.

Train, validation and test have no *line* in common. The line through (first, difference) is the set of numbers
congruent to first modulo |difference|, so a pair of neighbouring terms occurs in one split alone, in either order.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import UserError
from apformer.flags import require, require_whole
from apformer.tasks.batch import Batch
from apformer.tasks.progressions.proof import rows
from apformer.tasks.progressions.proof.rows import UNSPLIT_BELOW, fitting, split_of

Array = Any  # numpy or JAX integers
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Config:
    """The generator of the home task.

    Attributes:
        digits: Number D of digits of a term.
        min_terms: Fewest terms of a progression.
        max_terms: Most terms of a progression.
        min_difference: Smallest difference between neighbours; may be 0 or negative.
        max_difference: Largest difference between neighbours.
    """

    digits: int = 3
    min_terms: int = 2
    max_terms: int = 100
    min_difference: int = 1
    max_difference: int = 500


class Progressions(NamedTuple):
    """Rows of a generator, as JAX or numpy arrays.

    Attributes:
        first_B: First terms, int32.
        difference_B: Differences of consecutive terms, int32.
        terms_B: Numbers of terms, int32.
    """

    first_B: Array
    difference_B: Array
    terms_B: Array


def check(cfg: Config) -> None:
    """Raise UserError (exit USAGE) for a flag that is out of range."""
    require_whole("digits", cfg, 1, 9)
    require("min_terms", cfg.min_terms >= 2, cfg, "at least 2")
    require("max_terms", cfg.min_terms <= cfg.max_terms <= 10**9, cfg, f"--min_terms {cfg.min_terms} to 1000000000")
    fits = (10**cfg.digits - 1) // (cfg.min_terms - 1)
    room = f"{-fits} to {fits}, for which {cfg.min_terms} terms of --digits {cfg.digits} leave room"
    for flag in ("max_difference", "min_difference"):
        require(flag, abs(getattr(cfg, flag)) <= fits, cfg, room)
    require(
        "min_difference", cfg.min_difference <= cfg.max_difference, cfg, f"at most {cfg.max_difference}, the largest"
    )


def longest(difference: Array, cfg: Config) -> Array:
    """Return the most terms of a progression of each difference; numpy or JAX integers of any shape."""
    fits = fitting(0, abs(difference), cfg.digits)
    return difference.__array_namespace__().minimum(fits, cfg.max_terms)


def most_terms(cfg: Config) -> int:
    """Return the terms of the longest progression that the generator draws."""
    return rows.most_terms(vars(cfg), {})  # no model, so no window cuts them


@lru_cache
def has_split(cfg: Config, split: str) -> bool:
    """Return whether the generator ever draws a progression of the split."""
    for difference in range(cfg.min_difference, cfg.max_difference + 1):
        room = 10**cfg.digits - (cfg.min_terms - 1) * abs(difference)
        line = np.arange(min(max(abs(difference), 1), room, 1_000_000))
        if SPLITS.index(split) in split_of(np.full_like(line, difference), line):
            return True
    return False


def require_split(cfg: Config, split: str) -> None:
    """Raise UserError (exit USAGE) if there is no such split, or if the generator draws no progression of it."""
    if split not in SPLITS:
        raise UserError(f"split {split} is none of {', '.join(SPLITS)}")
    if not has_split(cfg, split):
        remedy = "2 to 9 --digits" if cfg.digits == 1 else f"a wider range that goes beyond {UNSPLIT_BELOW}"
        raise UserError(f"these differences have no {split} lines: give {remedy}")


def draw(key: jax.Array, cfg: Config, batch_size: int, split: str | None = None) -> Progressions:
    """Draw progressions from the generator, or from its distribution on the lines of one split.

    Pure; all but key are static under jit. split: "train", "validation" or "test"; None for all lines.

    Raises:
        UserError: Exit code USAGE, as `require_split` or `check`.
    """
    check(cfg)
    if split is None:
        return _draw(key, cfg, batch_size)
    require_split(cfg, split)

    # Rejection sampling: draw rows of other splits again, so that the conditional distribution is exact.
    def attempt(state: tuple) -> tuple:
        number, accepted_B, rows = state
        fresh = _draw(jax.random.fold_in(key, number), cfg, batch_size)
        rows = jax.tree.map(lambda old_B, new_B: jnp.where(accepted_B, old_B, new_B), rows, fresh)
        return number + 1, split_of(rows.difference_B, rows.first_B) == SPLITS.index(split), rows

    nothing_B = jnp.zeros(batch_size, jnp.int32)
    start = (jnp.int32(0), nothing_B > 0, Progressions(nothing_B, nothing_B, nothing_B))
    return jax.lax.while_loop(lambda state: ~state[1].all(), attempt, start)[2]


def _draw(key: jax.Array, cfg: Config, batch_size: int) -> Progressions:
    difference_key, terms_key, first_key = jax.random.split(key, 3)
    difference_B = cfg.min_difference + below(difference_key, cfg.max_difference - cfg.min_difference + 1, batch_size)
    terms_B = cfg.min_terms + below(terms_key, longest(difference_B, cfg) - cfg.min_terms + 1)
    span_B = (terms_B - 1) * difference_B
    first_B = jnp.maximum(-span_B, 0) + below(first_key, 10**cfg.digits - abs(span_B))
    return Progressions(first_B, difference_B, terms_B)


def below(key: jax.Array, limit_B: Array, *size: int) -> jax.Array:
    """Draw uniform integers from 0 .. limit - 1: floor(limit * u), where u is a binary fraction of 64 random bits.

    size: how many, if the limit is a single number.

    `jax.random.randint` takes 32 bits modulo a limit beyond 2^16, so it draws some 9-digit numbers a quarter more often
    than others. This is a long multiplication by 16 bits of u at a time, the lowest first.
    """
    limit_B = jnp.asarray(limit_B, jnp.uint32)
    bits_B2 = jax.random.bits(key, (*limit_B.shape, *size, 2), jnp.uint32)
    product_B = jnp.zeros_like(limit_B)
    for word, shift in ((0, 0), (0, 16), (1, 0), (1, 16)):
        u_B = bits_B2[:, word] >> shift & 0xFFFF
        low_B = (limit_B & 0xFFFF) * u_B + (product_B & 0xFFFF)
        product_B = (limit_B >> 16) * u_B + (product_B >> 16) + (low_B >> 16)
    return product_B.astype(jnp.int32)


@partial(jax.jit, static_argnames=("digits", "terms"))
def encode_rows(progressions: Progressions, digits: int, terms: int) -> Batch:
    """Return the first `terms` terms of every progression as a Batch, (B, terms * (digits + 1) - 1).

    Of terms that are too large, the last `digits` digits are encoded.
    """
    tokens_BT, inside_BT = rows.encode(progressions, digits, terms)
    weights_BT = inside_BT & (jnp.arange(tokens_BT.shape[1]) > 0)[None]
    return Batch(jnp.where(inside_BT, tokens_BT, 0), weights_BT.astype(jnp.float32))


def render(first: int, difference: int, terms: int, digits: int) -> str:
    """Return a progression as text, such as 007 010 013 016 019."""
    return " ".join(f"{first + k * difference:0{digits}d}" for k in range(terms))
