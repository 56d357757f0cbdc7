"""Rows of tokens, and which of them count."""

from typing import Any, NamedTuple

Array = Any  # of JAX or numpy


class Batch(NamedTuple):
    """Rows of tokens, (B, T) or with more axes before these.

    Attributes:
        tokens_BT: Tokens, int32; 0 beyond the end of a row.
        weights_BT: Weights of the tokens as targets, float32; 0 for the first and beyond the end.
    """

    tokens_BT: Array
    weights_BT: Array
