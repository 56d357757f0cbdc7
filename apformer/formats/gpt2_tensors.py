"""Our parameters under GPT-2's names and in its layout, and back.

GPT-2's linear maps are (in, out), as ours. Queries, keys and values share one matrix (D, 3 D), and heads are not an
axis. Each layer has tensors of its own; we stack them. The head, if untied, is (V, D). Attention always has biases. If
ours has none, zeros are written, which change nothing.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import model
from apformer.layers import leaves
from apformer.model import Config, Params

Place = tuple[str, ...]
PROJECTIONS = ("query", "key", "value")
MATRICES: dict[str, list[Place]] = {  # GPT-2's matrices in a block, and ours, side by side
    "attn.c_attn": [("attention", name) for name in PROJECTIONS],
    "attn.c_proj": [("attention", "output")],
    "mlp.c_fc": [("feedforward", "expand", "weight")],
    "mlp.c_proj": [("feedforward", "contract", "weight")],
}
BLOCK = {
    **{f"{name}.weight": places for name, places in MATRICES.items()},
    "attn.c_attn.bias": [("attention", f"{name}_bias") for name in PROJECTIONS],
    "attn.c_proj.bias": [("attention", "output_bias")],
    "mlp.c_fc.bias": [("feedforward", "expand", "bias")],
    "mlp.c_proj.bias": [("feedforward", "contract", "bias")],
    "ln_1.weight": [("attention_norm", "scale")],
    "ln_1.bias": [("attention_norm", "bias")],
    "ln_2.weight": [("feedforward_norm", "scale")],
    "ln_2.bias": [("feedforward_norm", "bias")],
}
OUTSIDE: dict[str, Place] = {
    "wte.weight": ("embedding", "table"),
    "wpe.weight": ("position", "table"),
    "ln_f.weight": ("final_norm", "scale"),
    "ln_f.bias": ("final_norm", "bias"),
}
HEAD: Place = ("head", "output", "weight")


def from_params(params: Params, cfg: Config) -> dict[str, jax.Array]:
    """Return {GPT-2's name, without prefix: array}; cfg is one that GPT-2 can say."""
    leaf_of = {place_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    no_bias_LD = jnp.zeros((cfg.n_layers, cfg.d_model), params["embedding"]["table"].dtype)
    tensors = {name: leaf_of[place] for name, place in OUTSIDE.items()}
    for name, places in BLOCK.items():
        parts = [flat(place, leaf_of.get(("blocks", *place), no_bias_LD)) for place in places]
        stacked = jnp.concatenate(parts, axis=-1)
        tensors |= {f"h.{layer}.{name}": stacked[layer] for layer in range(cfg.n_layers)}
    return tensors if cfg.tie_embeddings else tensors | {"lm_head.weight": leaf_of[HEAD].T}


def to_params(read: Callable[[str], np.ndarray], cfg: Config) -> Params:
    """Return our parameters from `read(name)`; one stack after the other, so that little is held twice."""
    expected = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    paths, tree = jax.tree_util.tree_flatten_with_path(expected)
    shape_of = {place_of(path): leaf.shape for path, leaf in paths}
    found = {place: jax.device_put(read(name)) for name, place in OUTSIDE.items()}
    if not cfg.tie_embeddings:
        found[HEAD] = jax.device_put(read("lm_head.weight").T)
    for name, places in BLOCK.items():
        stacked = np.stack([read(f"h.{layer}.{name}") for layer in range(cfg.n_layers)])
        for place, part in zip(places, np.split(stacked, len(places), axis=-1), strict=True):
            found["blocks", *place] = jax.device_put(part.reshape(shape_of["blocks", *place]))
    return tree.unflatten([found[place] for place in shape_of])


def place_of(path: tuple[Any, ...]) -> Place:
    """Return the names along a path of jax.tree_util."""
    return tuple(entry.key for entry in path)


def axes(place: Place, leaf: Any) -> tuple[list[int], list[int]]:
    """Return the sizes of the axes of the inputs and of the outputs of a stacked matrix."""
    role = leaves.LEAVES[place[-1]]
    return [leaf.shape[axis] for axis in role.inputs], [leaf.shape[axis] for axis in role.outputs]


def flat(place: Place, leaf: jax.Array) -> jax.Array:
    """Return a stacked leaf with one axis of inputs, where it is a matrix, and one of outputs."""
    inputs, _ = axes(place, leaf)
    return leaf.reshape(len(leaf), *([math.prod(inputs)] if inputs else []), -1)
