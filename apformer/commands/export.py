"""A trained model as one file for other programs.

- safetensors  every parameter under its path in the tree, `blocks.attention.query`; the Config as JSON in the metadata
- stablehlo    the function itself, tokens (B, T) int32 -> logits (B, T, V) for any B and T, with its parameters, for
               CPU, GPU and TPU; it needs JAX and nothing of ours:

    from jax import export
    logits_BTV = export.deserialize(open("model.stablehlo", "rb").read()).call(tokens_BT)

Versions of JAX of the next six months at least can read such a file (https://docs.jax.dev/en/latest/export/export.html).
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
from tyro.conf import Positional

from apformer import model, recurrent, seq2seq
from apformer.errors import CHECKPOINT, USAGE, UserError
from apformer.formats import safetensors
from apformer.runs import directory, recipes, restore


@dataclass(frozen=True)
class Export:
    """Write the model of a run to one file: `apformer export RUN --to safetensors --out FILE`."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    to: Literal["safetensors", "stablehlo"] = "safetensors"
    """The parameters by name, or the function that they make."""
    out: str | None = None
    """A new file; model.safetensors or model.stablehlo in the run directory if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""


def export(args):
    """Write the file and say where it is. Raises UserError that names the flag, the run or the file at fault."""
    path = directory.find(args.run)
    settings = restore.load_settings(path)
    out = Path(args.out) if args.out is not None else path / f"model.{args.to}"
    safetensors.refuse_to_overwrite(out)
    if args.to == "stablehlo" and isinstance(settings.model, seq2seq.Config):
        raise UserError(f"{path} reads two texts: give --to safetensors", USAGE)
    params, step, _ = restore.load_params(path, settings, args.member)
    write = {"safetensors": write_safetensors, "stablehlo": write_stablehlo}[args.to]
    write(out, params, settings.model)
    print(f"{out}: the model of {path} at step {step:,}, {out.stat().st_size:,} bytes")


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


def write_stablehlo(path, params, cfg):
    """Write the function tokens_BT -> logits_BTV to a new file; with learned positions T is at most max_len.

    Raises UserError: USAGE without the `export` extra or if there is a file, DISK if it cannot be written.
    """
    from jax import export

    safetensors.refuse_to_overwrite(path)
    most = recipes.module(cfg).max_tokens(cfg)
    longest = [] if most is None else [f"T <= {most}"]
    tokens_BT = jax.ShapeDtypeStruct(export.symbolic_shape("B, T", constraints=longest), jnp.int32)
    apply = jax.jit(restore.bound(params, cfg)["apply"])
    exported = export.export(apply, platforms=("cpu", "cuda", "tpu"))(tokens_BT)
    try:
        data = exported.serialize()
    except ImportError:  # of flatbuffers
        raise UserError('--to stablehlo needs the export extra: pip install -e ".[export]"', USAGE) from None
    directory.write_bytes(path, data)


def named(params):
    """{dotted path: leaf}, in the order of the leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {".".join(entry.key for entry in path): leaf for path, leaf in leaves}
