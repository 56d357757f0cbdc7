"""Convert our parameters to GPT-2's names and layout, and back.

In GPT-2, linear maps are (in, out), as ours. Queries, keys and values share one matrix (D, 3 D), and heads are not an
axis. Each layer has its own tensors, which we stack. The head, if untied, is (V, D). Attention always has biases: if
ours has none, zeros are written.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from apformer import model
from apformer.layers import leaves
from apformer.model import Config, Params

MATRICES = {  # {matrix of a block in GPT-2: our matrices, which it concatenates}
    "attn.c_attn": ["attention.query", "attention.key", "attention.value"],
    "attn.c_proj": ["attention.output"],
    "mlp.c_fc": ["feedforward.expand.weight"],
    "mlp.c_proj": ["feedforward.contract.weight"],
}
BLOCK = {
    **{f"{name}.weight": parts for name, parts in MATRICES.items()},
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
    """Return {GPT-2's name, without prefix: array}, for a cfg that `gpt2.require_gpt2` accepts."""
    leaf_of = leaves.named(params)
    no_bias_LD = jnp.zeros((cfg.n_layers, cfg.d_model), leaf_of["embedding.table"].dtype)

    def flat(part: str) -> Array:
        """Return a stacked leaf as (L, in, out) if it is a matrix, and (L, out) if it is a bias."""
        leaf = leaf_of.get(f"blocks.{part}", no_bias_LD)
        if leaf.ndim == 4:  # of attention: (L, D, H, K) or (L, H, K, D), and H K is D
            return leaf.reshape(len(leaf), cfg.d_model, cfg.d_model)
        return leaf if part.endswith("weight") else leaf.reshape(len(leaf), -1)

    tensors = {name: leaf_of[leaf] for name, leaf in OUTSIDE.items()}
    for name, parts in BLOCK.items():
        stacked = jnp.concatenate([*map(flat, parts)], axis=-1)
        tensors |= {f"h.{layer}.{name}": stacked[layer] for layer in range(cfg.n_layers)}
    return tensors if cfg.tie_embeddings else tensors | {"lm_head.weight": leaf_of[HEAD].T}


def to_params(read: Callable[[str], np.ndarray | Array], cfg: Config) -> Params:
    """Return our parameters, from a function that reads a tensor by GPT-2's name. One stack at a time is in memory."""
    expected = jax.eval_shape(lambda: model.init(jax.random.key(0), cfg))
    shape_of = {name: leaf.shape for name, leaf in leaves.named(expected).items()}
    arrays = {leaf: jax.device_put(read(name)) for name, leaf in OUTSIDE.items()}
    if not cfg.tie_embeddings:
        arrays[HEAD] = jax.device_put(read("lm_head.weight").T)
    for name, parts in BLOCK.items():
        stacked = np.stack([read(f"h.{layer}.{name}") for layer in range(cfg.n_layers)])
        for part, array in zip(parts, np.split(stacked, len(parts), axis=-1), strict=True):
            if shape := shape_of.get(f"blocks.{part}"):  # None for a bias that our model does not have
                arrays[f"blocks.{part}"] = jax.device_put(array.reshape(shape))
    return jax.tree.unflatten(jax.tree.structure(expected), [arrays[name] for name in shape_of])
