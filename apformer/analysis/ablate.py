"""Ablate parts of a trained model, and measure the loss of accuracy.

- head         Keys and values become 0, so that the head adds nothing. cross_head: a head of cross-attention.
- feedforward  The output becomes 0.
- offset       No head reads the token at this offset, unless a query sees no other token (relative positions).
- position     The vector of a position becomes 0 (learned positions).

In an encoder-decoder the side is a prefix: encoder.head, decoder.cross_head. An ablation is an edit of the parameters,
with which `model.apply` computes as usual. Zero-ablation overstates the effect of a part where later parts have learned
to expect its output (Michel et al. 2019 for heads, McGrath et al. 2023).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from apformer.layers import leaves
from apformer.settings import Settings, with_part

Part = tuple[Any, ...]
"""A kind and its indices, such as ("head", layer, head)."""
MOST_PLACES = 64  # indices along an axis that `parts` lists
MASKED = -1e9  # a score whose softmax weight is 0


def _head_leaves(attention: str) -> list[tuple[str, tuple[int, ...]]]:
    # The keys too, for architectures of a package whose heads are no weighted sums of values.
    matrices = [(f"blocks.{attention}.{name}", (0, 2)) for name in ("value", "key")]
    return matrices + [(f"{name}_bias", (0, 1)) for name, _ in matrices]


KINDS = {  # the leaves of each kind of part, and the axes of each leaf that its indices select
    "head": _head_leaves("attention"),
    "cross_head": _head_leaves("cross_attention"),
    "feedforward": [(f"blocks.feedforward.contract.{name}", (0,)) for name in ("weight", "bias")],
    "offset": [("blocks.attention.relative.table", (-1,))],
    "position": [("position.table", (0,))],
}


def parts(params: dict) -> list[Part]:
    """Return every part of a transformer that can be ablated, with layers from 0; [] for other architectures."""
    return [part for part in _parts(leaves.named(params)) if max(part[1:]) < MOST_PLACES]


def _parts(leaf_of: dict[str, Any]) -> list[Part]:
    parts = []
    for side in ("", "encoder.", "decoder."):
        for kind, ((first, axes), *_) in KINDS.items():
            if side + first in leaf_of:
                shape = leaf_of[side + first].shape
                parts += [(side + kind, *index) for index in np.ndindex(*(shape[axis] for axis in axes))]
    return parts


def ablate(params: dict, parts: Sequence[Part]) -> dict:
    """Return the parameters of a transformer with some of `parts(params)` ablated, as a tree of the same shape.

    Raises:
        ValueError: If a part is not one of this model.
    """
    leaf_of = leaves.named(params)
    existing = _parts(leaf_of)
    for part in parts:
        if tuple(part) not in existing:
            raise ValueError(f"{part} is not a part of this model: parts(params) lists them, such as {existing[:1]}")
        qualified, *index = part
        side, dot, kind = qualified.rpartition(".")
        for path, axes in KINDS[kind]:
            if (name := side + dot + path) in leaf_of:
                leaf_of[name] = edited = np.array(leaf_of[name])
                np.moveaxis(edited, axes, range(len(axes)))[tuple(index)] = MASKED if kind == "offset" else 0.0
    return jax.tree.unflatten(jax.tree.structure(params), leaf_of.values())


def drops(params: dict, measure: Callable[[dict], dict]) -> list[dict]:
    """Measure the model, and the model with each of its parts ablated, with matrix products at the highest precision.

    Args:
        params: Parameters of the model.
        measure: Function of parameters that returns {name: number}. It is compiled once.

    Returns:
        [{"part", and each number}]; the part of the first record, of the whole model, is ().
    """
    measure = jax.jit(measure)
    with jax.default_matmul_precision("highest"):
        return [
            {"part": part} | jax.tree.map(float, measure(ablate(params, part and [part])))
            for part in [(), *parts(params)]
        ]


def loss_drops(make_loss: Callable, settings: Settings, params: dict, batch: Any) -> list[dict]:
    """Return the `drops` of the metrics of a task's loss on a batch, in float32."""
    loss_fn = make_loss(with_part(settings, "training", compute_dtype="float32"))
    return drops(params, lambda params: loss_fn(params, batch, None)[1])
