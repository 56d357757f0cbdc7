"""A trained model as one file of named parameters, with its Config as JSON in the metadata."""

import dataclasses
import json

import jax
import jax.numpy as jnp

from apformer import model, recurrent, seq2seq
from apformer.errors import CHECKPOINT, UserError
from apformer.formats import safetensors
from apformer.runs import recipes


def write_safetensors(path, params, cfg):
    """Write the parameters, bit for bit, to a new file. Raises UserError as `tensor_file.write` does."""
    metadata = {"format": "apformer", "config": json.dumps(dataclasses.asdict(cfg))}
    safetensors.write(path, named(params), metadata)


def read_safetensors(path):
    """(cfg, params) of a file that `write_safetensors` wrote. Raises UserError (exit CHECKPOINT) if it is another."""
    with safetensors.reading(path) as file:
        try:
            config = json.loads((file.metadata() or {})["config"])
            kinds = {"cell": recurrent.Config, "n_encoder_layers": seq2seq.Config}
            cfg = next((kind for name, kind in kinds.items() if name in config), model.Config)(**config)
        except (KeyError, TypeError, ValueError) as error:
            remedy = "give a file that `apformer export` wrote"
            raise UserError(f"{path} holds no Config of a model ({error}): {remedy}", CHECKPOINT) from None
        expected = jax.eval_shape(lambda key: recipes.module(cfg).init(key, cfg), jax.random.key(0))
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
        if shapes != {name: leaf.shape for name, leaf in named(expected).items()}:
            raise UserError(f"{path} holds other names or shapes than its Config has: export it anew", CHECKPOINT)
        arrays = [jnp.asarray(file.get_tensor(name)) for name in named(expected)]
    return cfg, jax.tree.unflatten(jax.tree.structure(expected), arrays)


def named(params):
    """{dotted path: leaf}, in the order of the leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(entry.key for entry in path): leaf for path, leaf in leaves}
