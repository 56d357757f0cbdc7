"""Sums as text: two terms of D digits and their sum of D + 1, each least significant digit first.

    a_0 .. a_{D-1} _ b_0 .. b_{D-1} _ s_0 .. s_D        s_j = (a_j + b_j + c_j) mod 10,  c_0 = 0

The carry c_{j+1} is 1 if a_j + b_j is above 9, 0 if it is below, and c_j if it is 9. So a carry travels along a chain
of places whose digits add up to 9. What is split is the pairs (a, b): a hash makes each one train, validation or test,
about 80 : 10 : 10. In training, a pair of another split counts nothing.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from apformer.flags import require
from apformer.tasks.batch import Batch
from apformer.tokenizers.digits import VOCABULARY

SPLITS = ("train", "validation", "test")
SPACE = VOCABULARY[" "]
CANDIDATES = 20  # pairs drawn for each one of a held-out split; about a tenth is of it


@dataclass(frozen=True)
class Config:
    """The generator of sums."""

    digits: int = 10
    """Digits D of each of the two terms. Their sum has D + 1."""


def check(cfg):
    """Refuse a Config that no generator can follow. Raises UserError (exit USAGE) that names the flag."""
    require("digits", 1 <= cfg.digits <= 1000, cfg, "1 to 1000")


def length(cfg):
    """Characters of a row."""
    return 3 * (cfg.digits + 1)


def given(cfg):
    """Characters before the sum: both terms, and the space after each."""
    return 2 * (cfg.digits + 1)


def carries(pair_B2C):
    """The carry out of each place, from the lowest: (B, C) int32."""
    both_BC = pair_B2C.sum(1, dtype=jnp.int32)
    place_C = jnp.arange(both_BC.shape[1], dtype=jnp.int32)
    # The highest place so far that does not pass on what it is given decides; none means 0.
    decides_BC = jnp.where(both_BC == 9, 0, 2 * place_C[None] + (both_BC > 9).astype(jnp.int32))
    return jax.lax.cummax(decides_BC, axis=1) % 2


def sums(pair_B2C):
    """The digits of the sums of pairs, from the lowest: (B, C + 1) int32."""
    carry_BC = jnp.pad(carries(pair_B2C), ((0, 0), (1, 0)))
    return (jnp.pad(pair_B2C.sum(1, dtype=jnp.int32), ((0, 0), (0, 1))) + carry_BC) % 10


def split_of(pair_B2C):
    """Split of each pair: 0 train, 1 validation, 2 test. (B,) int32.

    A polynomial of the digits modulo 2^32, and the finalizer of MurmurHash3 (Appleby, 2008).
    """
    digits_BC = pair_B2C.reshape(len(pair_B2C), -1).astype(jnp.uint32)
    power_C = np.multiply.accumulate(np.full(digits_BC.shape[1], 0x9E3779B1, np.uint32))
    bits = (digits_BC * power_C[None]).sum(1, dtype=jnp.uint32) + np.uint32(0x9E3779B9)
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return jnp.maximum(((bits ^ (bits >> 16)) % 10).astype(jnp.int32) - 7, 0)


def draw(key, cfg, size, chains=False):
    """Pairs of terms, digits uniform: (B, 2, C) int32. Pure; all but key are static under jit.

    chains: from a place of each pair, drawn too, a carry starts and travels over a number of places.
    """
    digit_key, start_key, extent_key = jax.random.split(key, 3)
    pair_B2C = jax.random.randint(digit_key, (size, 2, cfg.digits), 0, 10)
    if not chains:
        return pair_B2C
    start_B = jax.random.randint(start_key, (size,), 0, cfg.digits)
    extent_B = jax.random.randint(extent_key, (size,), 0, cfg.digits)
    after_BC = jnp.arange(cfg.digits, dtype=jnp.int32)[None] - start_B[:, None]
    a_BC, b_BC = pair_B2C[:, 0], pair_B2C[:, 1]
    b_BC = jnp.where((after_BC > 0) & (after_BC <= extent_B[:, None]), 9 - a_BC, b_BC)
    starts_BC = after_BC == 0
    a_BC = jnp.where(starts_BC, jnp.maximum(a_BC, 1), a_BC)
    return jnp.stack([a_BC, jnp.where(starts_BC, jnp.maximum(b_BC, 10 - a_BC), b_BC)], axis=1)


def held_out(seed, cfg, size, split, chains=False):
    """Pairs of a split, (B, 2, C), the same for every seed of training; fewer where there are few."""
    pair_B2C = np.asarray(draw(jax.random.key(seed), cfg, CANDIDATES * size, chains))
    return pair_B2C[np.asarray(split_of(pair_B2C)) == SPLITS.index(split)][:size]


def encode(pair_B2C, counts_B=None):
    """Rows of pairs as a Batch; the digits of the sum alone count, and those of the rows in counts_B, bool."""
    B, _, C = pair_B2C.shape
    space_B1 = jnp.full((B, 1), SPACE, jnp.int32)
    parts = (pair_B2C[:, 0], space_B1, pair_B2C[:, 1], space_B1, sums(pair_B2C))
    tokens_BT = jnp.concatenate(parts, axis=1)
    asked_BT = (jnp.arange(tokens_BT.shape[1]) >= 2 * (C + 1))[None]
    if counts_B is not None:
        asked_BT &= counts_B[:, None]
    return Batch(tokens_BT, jnp.broadcast_to(asked_BT, tokens_BT.shape).astype(jnp.float32))


def digits_of(number, digits):
    """The digits of a number, from the lowest."""
    return [number // 10**place % 10 for place in range(digits)]


def render(a, b, cfg):
    """What is given of a sum of two numbers, as text, without the space at its end."""
    return " ".join("".join(map(str, digits_of(number, cfg.digits))) for number in (a, b))
