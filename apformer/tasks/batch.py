"""Rows of tokens and their weights."""

from typing import Any, NamedTuple

Array = Any  # of JAX or numpy


class Batch(NamedTuple):
    """Rows of tokens, (B, T) or with more axes before these.

    Attributes:
        tokens_BT: Tokens, int32; 0 for padding.
        weights_BT: Weights of the tokens as targets, float32; 0 for the first and for padding.
    """

    tokens_BT: Array
    weights_BT: Array
