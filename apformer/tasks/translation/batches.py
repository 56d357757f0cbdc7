"""Batch pairs of sentences by about equally many tokens, whatever their lengths.

    widths 9 14 21 40:  a batch has 64 pairs of up to 21 tokens, or 149 of up to 9, or 33 of up to 40

Sentences are padded to one of a few widths, so that few steps are compiled and little of a batch is padding. Batches of
every width are packed into arrays of one shape, since a loop on the device needs one.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding.generate import right_padded


class Padded(NamedTuple):
    """Pairs of one width S = T, as int32 arrays of numpy or JAX; the leading axis N is B in a batch."""

    source_NS: Any
    source_lengths_N: Any
    target_NT: Any
    target_lengths_N: Any


class Batch(NamedTuple):
    """A batch of one width: the index of the width, and a Padded whose leaves are flat and of one size for all."""

    branch: jax.Array
    flat: Padded


def longest_of(sides: Sequence[list]) -> np.ndarray:
    """Return the number of tokens of the longer side of each pair."""
    return np.array([max(map(len, pair)) for pair in zip(*sides, strict=True)])


def pad(sides: Sequence[list], widths: tuple[int, ...]) -> tuple[Padded, ...]:
    """Return a Padded of each width, in numpy, without pairs longer than all widths."""
    branch_N = np.searchsorted(widths, longest_of(sides))
    parts = []
    for k, width in enumerate(widths):
        numbers = np.flatnonzero(branch_N == k)
        parts.append(Padded(*chain(*(right_padded([side[n] for n in numbers], width) for side in sides))))
    return tuple(parts)


def rows_of(widths: tuple[int, ...], batch_size: int) -> tuple[int, ...]:
    """Return the number of pairs in a batch of each width: batch_size for the middle one, else as many tokens."""
    tokens = batch_size * widths[len(widths) // 2]
    return tuple(max(1, tokens // width) for width in widths)


def draw(key: jax.Array, parts: tuple[Padded, ...], rows: tuple[int, ...]) -> Batch:
    """Draw a batch of one width, with all pairs equally likely. Pure; rows are static under jit."""
    branch_key, row_key = jax.random.split(key)
    sized = [*zip(parts, rows, strict=True)]
    batches_K = np.array([len(part.source_NS) / size for part, size in sized], np.float32)
    branch = jax.random.categorical(branch_key, jnp.log(batches_K)).astype(jnp.int32)
    most = [max(size * part[field][0].size for part, size in sized) for field in range(len(Padded._fields))]

    def of_width(part: Padded, size: int, key: jax.Array) -> Padded:
        index_B = jax.random.randint(key, (size,), 0, len(part.source_NS))
        flat = [leaf[index_B].reshape(-1) for leaf in part]
        return Padded(*(jnp.pad(leaf, (0, room - leaf.size)) for leaf, room in zip(flat, most, strict=True)))

    branches = [partial(of_width, part, size) for part, size in sized]
    return Batch(branch, jax.lax.switch(branch, branches, row_key))


def unpack(flat: Padded, size: int, width: int) -> Padded:
    """Return the pairs of a flat batch, of shapes (size, width) and (size,)."""
    source, source_lengths, target, target_lengths = flat
    source_NS, target_NT = (side[: size * width].reshape(size, width) for side in (source, target))
    return Padded(source_NS, source_lengths[:size], target_NT, target_lengths[:size])


def consecutive(part: Padded, batch_tokens: int) -> Padded:
    """Return all pairs of one width in batches of batch_tokens a side, (batches, B, ...); padding has length 0."""
    N, width = part.source_NS.shape
    size = max(1, min(N, batch_tokens // width))
    padded = (np.pad(leaf, [(0, -N % size)] + [(0, 0)] * (leaf.ndim - 1)) for leaf in part)
    return Padded(*(leaf.reshape(-1, size, *leaf.shape[1:]) for leaf in padded))
