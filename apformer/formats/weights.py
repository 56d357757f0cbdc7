"""A trained model as one file of named parameters, with its architecture and its Config as JSON in the metadata."""

import dataclasses
import json

import jax

from apformer import files
from apformer.errors import CHECKPOINT, UserError
from apformer.formats import safetensors
from apformer.settings import load_architecture, model_from


def write_safetensors(path, architecture, params, cfg):
    """Write the parameters, bit for bit, to a new file. Raises UserError as `safetensors.write` does.

    architecture: the architecture that the Config is of, such as "model".
    """
    metadata = {"format": "apformer", "architecture": architecture, "config": json.dumps(dataclasses.asdict(cfg))}
    safetensors.write(path, named(params), metadata)


def read_safetensors(path):
    """(cfg, params) of a file that `write_safetensors` wrote. Raises UserError (exit CHECKPOINT) if it is another."""
    with safetensors.reading(path) as file:
        try:
            metadata = file.metadata() or {}
            cfg = model_from(metadata["architecture"], files.parse_json(metadata["config"]))
            module = load_architecture(metadata["architecture"])
        except (KeyError, TypeError, ValueError, AttributeError, UserError) as error:
            remedy = "give a file that `apformer export` wrote"
            raise UserError(f"{path} holds no Config of a model ({error}): {remedy}", CHECKPOINT) from None
        expected = jax.eval_shape(lambda key: module.init(key, cfg), jax.random.key(0))
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
        if shapes != {name: leaf.shape for name, leaf in named(expected).items()}:
            raise UserError(f"{path} holds other names or shapes than its Config has: export it anew", CHECKPOINT)
        arrays = jax.device_put([file.get_tensor(name) for name in named(expected)])
    return cfg, jax.tree.unflatten(jax.tree.structure(expected), arrays)


def named(params):
    """{dotted path: leaf}, in the order of the leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(entry.key for entry in path): leaf for path, leaf in leaves}
