"""Switch parts of a trained model off, and measure what is lost.

- head         its keys and values are 0, so that it adds nothing; cross_head is a head of cross-attention
- feedforward  its output is 0
- offset       no head of any layer reads the token at this offset, unless it sees no other (relative positions)
- position     the vector of a position is 0 (learned positions)

Of an encoder-decoder each part names its side: encoder.head, decoder.cross_head. An ablation is an edit of the
parameters: `model.apply` computes with it as with any others. Zero-ablation overstates what a part does where later
parts had learned to expect it (Michel et al. 2019 for heads, McGrath et al. 2023).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from apformer.layers import leaves

Part = tuple[Any, ...]
"""A kind and its indices, such as ("head", layer, head)."""
MOST_PLACES = 64  # indices along an axis that are switched off one by one
BLIND = -1e9  # a score that no other makes up for


def _silent(attention: str) -> list[tuple[str, tuple[int, ...]]]:
    # Of keys that are 0 none decides: a head that looks ahead says the bit -1 of a value that is 0.
    matrices = [(f"blocks.{attention}.{name}", (0, 2)) for name in ("value", "key")]
    return matrices + [(f"{name}_bias", (0, 1)) for name, _ in matrices]


KINDS = {  # the leaves of a part, and the axes of each that its indices are for
    "head": _silent("attention"),
    "cross_head": _silent("cross_attention"),
    "feedforward": [(f"blocks.feedforward.contract.{name}", (0,)) for name in ("weight", "bias")],
    "offset": [("blocks.attention.relative.table", (-1,))],
    "position": [("position.table", (0,))],
}


def parts(params: dict) -> list[Part]:
    """Return every part of a transformer that can be switched off, layers from 0; none of other models."""
    return [part for part in _parts(leaves.named(params)) if max(part[1:]) < MOST_PLACES]


def _parts(leaf_of: dict[str, Any]) -> list[Part]:
    found = []
    for side in ("", "encoder.", "decoder."):
        for kind, ((first, axes), *_) in KINDS.items():
            if side + first in leaf_of:
                shape = leaf_of[side + first].shape
                found += [(side + kind, *index) for index in np.ndindex(*(shape[axis] for axis in axes))]
    return found


def ablate(params: dict, parts: Sequence[Part]) -> dict:
    """Return the parameters of a transformer with some of `parts(params)` switched off; the tree keeps its shape.

    Raises:
        ValueError: For another part.
    """
    leaf_of = leaves.named(params)
    known = _parts(leaf_of)
    for part in parts:
        if tuple(part) not in known:
            raise ValueError(f"{part} is no part of this model: parts(params) lists them, such as {known[:1]}")
        named, *index = part
        side, dot, kind = named.rpartition(".")
        for path, axes in KINDS[kind]:
            if (name := side + dot + path) in leaf_of:
                leaf_of[name] = edited = np.array(leaf_of[name])
                at: list[Any] = [slice(None)] * edited.ndim
                for axis, i in zip(axes, index, strict=True):
                    at[axis] = i
                edited[tuple(at)] = BLIND if kind == "offset" else 0.0
    return jax.tree.unflatten(jax.tree.structure(params), leaf_of.values())


def drops(params: dict, measure: Callable[[dict], dict]) -> list[dict]:
    """Measure the model, and the model without each of its parts, with matrix products at the highest precision.

    Args:
        params: Parameters of the model.
        measure: Function of parameters that returns {name: number}. It is compiled once.

    Returns:
        [{"part", and each number}]; the first part is none.
    """
    measure = jax.jit(measure)
    with jax.default_matmul_precision("highest"):
        return [
            {"part": part} | {name: float(value) for name, value in measure(ablate(params, part and [part])).items()}
            for part in [(), *parts(params)]
        ]
