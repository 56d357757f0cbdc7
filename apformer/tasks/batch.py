"""Rows of tokens, and which of them count."""

from typing import Any, NamedTuple

Array = Any  # of JAX or numpy


class Batch(NamedTuple):
    """Rows of tokens, (B, T) or with more axes before these."""

    tokens_BT: Array  # int32; 0 beyond a row's end
    weights_BT: Array  # float32; the weight of tokens_BT[b, t] as a target: 0 for the first and beyond the end
