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
from functools import partial
from typing import Any

import jax

Part = tuple[Any, ...]
"""A kind and its indices, such as ("head", layer, head)."""
MOST_PLACES = 64  # offsets or positions that are switched off one by one
BLIND = -1e9  # a score that no other makes up for


def parts(params: dict) -> list[Part]:
    """Return every part of a transformer that can be switched off, layers from 0; none of other models."""
    if "encoder" in params:
        sides = ("encoder", "decoder")
        return [(f"{side}.{kind}", *index) for side in sides for kind, *index in _parts_of_stack(params[side])]
    return _parts_of_stack(params) if "blocks" in params else []


def _parts_of_stack(params: dict) -> list[Part]:
    blocks, found = params["blocks"], []
    layers = len(blocks["attention"]["value"])
    for kind, attention in (("head", "attention"), ("cross_head", "cross_attention")):
        if attention in blocks:
            heads = blocks[attention]["value"].shape[2]
            found += [(kind, layer, head) for layer in range(layers) for head in range(heads)]
    found += [("feedforward", layer) for layer in range(layers) if "feedforward" in blocks]
    if "relative" in blocks["attention"]:
        offsets = blocks["attention"]["relative"]["table"].shape[-1]
        found += [("offset", offset) for offset in range(min(offsets, MOST_PLACES))]
    if "table" in params.get("position", {}):
        found += [("position", place) for place in range(min(len(params["position"]["table"]), MOST_PLACES))]
    return found


def ablate(params: dict, parts: Sequence[Part]) -> dict:
    """Return the parameters of a transformer with some of `parts(params)` switched off; the tree keeps its shape."""
    for named, *index in parts:
        side, _, kind = named.rpartition(".")
        for path, at, value in _EDITS[kind](*index):
            params = _edit(params, [side, *path] if side else path, at, value)
    return params


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


def _silence(attention: str, layer: int, head: int) -> list[Part]:
    # Of keys that are 0 none decides: a head that looks ahead says the bit -1 of a value that is 0.
    return [
        edit
        for name in ("key", "value")
        for edit in (
            (("blocks", attention, name), (layer, slice(None), head), 0.0),
            (("blocks", attention, f"{name}_bias"), (layer, head), 0.0),
        )
    ]


_EDITS = {
    "head": partial(_silence, "attention"),
    "cross_head": partial(_silence, "cross_attention"),
    "feedforward": lambda layer: (
        (("blocks", "feedforward", "contract", "weight"), layer, 0.0),
        (("blocks", "feedforward", "contract", "bias"), layer, 0.0),
    ),
    "offset": lambda offset: ((("blocks", "attention", "relative", "table"), (..., offset), BLIND),),
    "position": lambda place: ((("position", "table"), place, 0.0),),
}


def _edit(params: dict, path: Sequence[str], at: Any, value: float) -> dict:
    """Return the tree with numbers of one leaf replaced; as it is where there is no such leaf."""
    name, *rest = path
    if name not in params:
        return params
    new = _edit(params[name], rest, at, value) if rest else params[name].at[at].set(value)
    return params | {name: new}
