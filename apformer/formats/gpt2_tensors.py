"""Our parameters under GPT-2's names and in its layout, and back.

GPT-2's linear maps are (in, out), as ours. Queries, keys and values share one matrix (D, 3 D), and heads are not an
axis. Each layer has tensors of its own; we stack them. The head, if untied, is (V, D). Attention always has biases. If
ours has none, zeros are written, which change nothing.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from apformer import model
from apformer.layers import leaves
from apformer.model import Config, Params

MATRICES = {  # GPT-2's matrices in a block, and ours, side by side
    "attn.c_attn": ["attention.query", "attention.key", "attention.value"],
    "attn.c_proj": ["attention.output"],
    "mlp.c_fc": ["feedforward.expand.weight"],
    "mlp.c_proj": ["feedforward.contract.weight"],
}
BLOCK = {
    **{f"{name}.weight": ours for name, ours in MATRICES.items()},
    "attn.c_attn.bias": ["attention.query_bias", "attention.key_bias", "attention.value_bias"],
    "attn.c_proj.bias": ["attention.output_bias"],
    "mlp.c_fc.bias": ["feedforward.expand.bias"],
    "mlp.c_proj.bias": ["feedforward.contract.bias"],
    "ln_1.weight": ["attention_norm.scale"],
    "ln_1.bias": ["attention_norm.bias"],
    "ln_2.weight": ["feedforward_norm.scale"],
    "ln_2.bias": ["feedforward_norm.bias"],
}
OUTSIDE = {
    "wte.weight": "embedding.table",
    "wpe.weight": "position.table",
    "ln_f.weight": "final_norm.scale",
    "ln_f.bias": "final_norm.bias",
}
HEAD = "head.output.weight"


def from_params(params: Params, cfg: Config) -> dict[str, Array]:
    """Return {GPT-2's name, without prefix: array}; cfg is one that GPT-2 can say."""
    leaf_of = leaves.named(params)
    no_bias_LD = jnp.zeros((cfg.n_layers, cfg.d_model), leaf_of["embedding.table"].dtype)

    def flat(ours: str) -> Array:
        """Return a stacked leaf with one axis of inputs, where it is a matrix, and one of outputs."""
        leaf = leaf_of.get(f"blocks.{ours}", no_bias_LD)
        inputs = [leaf.shape[axis] for axis in leaves.LEAVES[ours.rpartition(".")[2]].inputs]
        return leaf.reshape(len(leaf), *([math.prod(inputs)] if inputs else []), -1)

    tensors = {name: leaf_of[ours] for name, ours in OUTSIDE.items()}
    for name, parts in BLOCK.items():
        stacked = jnp.concatenate([*map(flat, parts)], axis=-1)
        tensors |= {f"h.{layer}.{name}": stacked[layer] for layer in range(cfg.n_layers)}
    return tensors if cfg.tie_embeddings else tensors | {"lm_head.weight": leaf_of[HEAD].T}


def to_params(read: Callable[[str], np.ndarray | Array], cfg: Config) -> Params:
    """Return our parameters from `read(name)`; one stack after the other, so that little is held twice."""
    expected = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    shape_of = {name: leaf.shape for name, leaf in leaves.named(expected).items()}
    found = {ours: jax.device_put(read(name)) for name, ours in OUTSIDE.items()}
    if not cfg.tie_embeddings:
        found[HEAD] = jax.device_put(read("lm_head.weight").T)
    for name, parts in BLOCK.items():
        stacked = np.stack([read(f"h.{layer}.{name}") for layer in range(cfg.n_layers)])
        for ours, part in zip(parts, np.split(stacked, len(parts), axis=-1), strict=True):
            if shape := shape_of.get(f"blocks.{ours}"):  # not of a bias that ours does without
                found[f"blocks.{ours}"] = jax.device_put(part.reshape(shape))
    return jax.tree.unflatten(jax.tree.structure(expected), [found[name] for name in shape_of])
