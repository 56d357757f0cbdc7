"""A trained model as one file for other programs.

- safetensors  every parameter under its path in the tree, `blocks.attention.query`; the Config as JSON in the metadata
- stablehlo    the function itself, tokens (B, T) int32 -> logits (B, T, V) for any B and T, with its parameters, for
               CPU, GPU and TPU; it needs JAX and nothing of ours:

    from jax import export
    logits_BTV = export.deserialize(open("model.stablehlo", "rb").read()).call(tokens_BT)

Versions of JAX of the next six months at least can read such a file (https://docs.jax.dev/en/latest/export/export.html).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from apformer import seq2seq
from apformer.errors import USAGE, UserError
from apformer.formats import safetensors
from apformer.formats.stablehlo import write_stablehlo
from apformer.formats.weights import write_safetensors
from apformer.runs import directory, restore


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
