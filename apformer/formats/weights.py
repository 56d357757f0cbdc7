"""Save a trained model as one file of named parameters, with architecture and Config as JSON in the metadata."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax

from apformer import files
from apformer.errors import CHECKPOINT, UserError
from apformer.formats import model_folder, safetensors
from apformer.layers.leaves import named
from apformer.settings import load_architecture, model_from


def write_safetensors(path: str | Path, architecture: str, params: Any, cfg: Any) -> None:
    """Write the parameters, bit for bit, to a new file. Raises UserError as `safetensors.write` does.

    architecture: name of the architecture of cfg, such as "model".
    """
    metadata = {"format": "apformer", "architecture": architecture, "config": json.dumps(dataclasses.asdict(cfg))}
    safetensors.write(path, named(params), metadata)


def read_safetensors(path: str | Path) -> tuple[Any, Any]:
    """Return (cfg, params) of a file that `write_safetensors` wrote. Raises UserError (exit CHECKPOINT) otherwise."""
    tensors = model_folder.read_file(Path(path))
    try:
        architecture = tensors.metadata["architecture"]
        cfg = model_from(architecture, files.parse_json(tensors.metadata["config"]))
        module = load_architecture(architecture)
    except (KeyError, TypeError, ValueError, AttributeError, UserError) as error:
        remedy = "give a file that `apformer export` wrote"
        raise UserError(f"{path} holds no Config of a model ({error}): {remedy}", CHECKPOINT) from None
    expected = jax.eval_shape(lambda key: module.init(key, cfg), jax.random.key(0))
    shapes = {name: leaf.shape for name, leaf in named(expected).items()}
    if shapes != {name: header.shape for name, header in tensors.headers.items()}:
        raise UserError(f"{path} holds other names or shapes than its Config has: export it anew", CHECKPOINT)
    arrays = jax.device_put([tensors.read(name) for name in shapes])
    return cfg, jax.tree.unflatten(jax.tree.structure(expected), arrays)
