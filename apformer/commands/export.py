"""A trained model as one file for other programs, or as a GPT-2 folder.

- safetensors  every parameter under its path in the tree, `blocks.attention.query`; the Config as JSON in the metadata
- stablehlo    the function itself, tokens (B, T) int32 -> logits (B, T, V) for any B and T, with its parameters, for
               CPU, GPU and TPU; it needs JAX and nothing of ours (the lines below)
- gpt2         config.json, model.safetensors and the tokenizer: what `transformers` and `apformer generate` open

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
from apformer.formats import gpt2, safetensors
from apformer.runs import directory, recipes, restore
from apformer.tokenizers import pretrained

DEFAULTS = {"safetensors": "model.safetensors", "stablehlo": "model.stablehlo", "gpt2": "gpt2"}


@dataclass(frozen=True)
class Export:
    """Write the model of a run for other programs: `apformer export RUN --to gpt2 --out FOLDER`."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    to: Literal["safetensors", "stablehlo", "gpt2"] = "safetensors"
    """The parameters by name, the function that they make, or a GPT-2 folder of a model in GPT-2's shape."""
    out: str | None = None
    """A new file, or folder for gpt2; model.safetensors, model.stablehlo or gpt2 in the run directory if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""


def export(args):
    """Write the file or the folder, and say where it is. Raises UserError that names what is at fault."""
    path = directory.find(args.run)
    settings = restore.load_settings(path)
    out = Path(args.out) if args.out is not None else path / DEFAULTS[args.to]
    architecture = recipes.module(settings.model)
    if args.to == "stablehlo" and architecture is seq2seq:
        raise UserError(f"{path} reads two texts: give --to safetensors", USAGE)
    if args.to == "gpt2" and architecture is not model:
        raise UserError(f"{path} is no decoder-only transformer, as GPT-2 is: give --to safetensors", USAGE)
    if args.to != "gpt2":
        safetensors.refuse_to_overwrite(out)
    params, step, _ = restore.load_params(path, settings, args.member)
    if args.to == "gpt2":
        kept = path / "tokenizer.json"
        write_gpt2(out, params, settings.model, pretrained.load(kept) if kept.exists() else None)
    else:
        {"safetensors": write_safetensors, "stablehlo": write_stablehlo}[args.to](out, params, settings.model)
    size = sum(file.stat().st_size for file in [out, *out.glob("*")] if file.is_file())
    print(f"{out}: the model of {path} at step {step:,}, {size:,} bytes")


def write_gpt2(folder, params, cfg, tokenizer=None):
    """Write a new GPT-2 folder, with the tokenizer if there is one. Raises UserError as `gpt2.save` does.

    transformers opens byte pairs; characters, for which it has no format, are read by `apformer generate` alone.
    """
    gpt2.save(folder, params, cfg)
    if tokenizer is not None:
        pretrained.save(tokenizer, folder / "tokenizer.json")
        directory.write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


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
    longest = [f"T <= {cfg.max_len}"] if getattr(cfg, "position", None) == "learned" else []
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
