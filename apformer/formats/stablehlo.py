"""Write a trained model as a function in StableHLO, tokens (B, T) to logits (B, T, V)."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from apformer import files
from apformer.decoding.bind import bind
from apformer.errors import UserError
from apformer.formats import safetensors
from apformer.settings import load_architecture


def write_stablehlo(path: str | Path, architecture: str, params: Any, cfg: Any) -> None:
    """Write the function tokens_BT -> logits_BTV to a new file; with learned positions T is at most max_len.

    architecture: name of the architecture of cfg, such as "model".

    Raises UserError: USAGE without the `export` extra or if the file exists, DISK if it cannot be written.
    """
    from jax import export

    safetensors.refuse_to_overwrite(path)
    module = load_architecture(architecture)
    most = module.max_tokens(cfg)
    shape = export.symbolic_shape("B, T", constraints=[f"T <= {most}"] if most else [])
    tokens_BT = jax.ShapeDtypeStruct(shape, jnp.int32)
    apply = jax.jit(bind(module, params, cfg).apply)
    exported = export.export(apply, platforms=("cpu", "cuda", "tpu"))(tokens_BT)
    try:
        data = exported.serialize()
    except ImportError:  # no flatbuffers
        raise UserError('--to stablehlo needs the export extra: pip install "apformer[export]"') from None
    files.write_bytes(path, bytes(data))
