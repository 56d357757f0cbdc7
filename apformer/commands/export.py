"""Write the model for other programs: apformer export RUN --to safetensors|stablehlo|gpt2|lora|proof.

- safetensors  every parameter under its path in the tree, `blocks.attention.query`; the Config as JSON in the metadata
- stablehlo    the function itself, tokens (B, T) int32 -> logits (B, T, V) for any B and T, with its parameters, for
               CPU, GPU and TPU; it needs JAX and nothing of ours (the lines below)
- gpt2         config.json, model.safetensors and the tokenizer: what `transformers` and `apformer generate` open
- lora         adapter_config.json and adapter_model.safetensors: low-rank adapters alone, without the model that they
               were trained on; `peft` opens it, and `--adapter` of `apformer generate` and `apformer evaluate`
- proof        config.json, model.safetensors, certificate.json, and check.py with the files that it needs: `python
               check.py` proves the certificate anew, in float64 and for any float32, with numpy alone

    from jax import export
    logits_BTV = export.deserialize(open("model.stablehlo", "rb").read()).call(tokens_BT)

Versions of JAX of the next six months at least can read such a file (https://docs.jax.dev/en/latest/export/export.html).
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from apformer import files, tasks
from apformer.analysis.certificate import case
from apformer.commands import Run
from apformer.errors import UserError, tell, typed
from apformer.files import FilePath
from apformer.formats import gpt2, peft
from apformer.formats.stablehlo import write_stablehlo
from apformer.formats.weights import write_safetensors
from apformer.proof import check
from apformer.runs import directory, restore
from apformer.settings import Settings
from apformer.tasks.text import folders
from apformer.tokenizers import pretrained

DEFAULTS = {"safetensors": "model.safetensors", "stablehlo": "model.stablehlo"}  # a folder has the format's name
PROGRAMS = [Path(check.__file__).with_name(f"{name}.py") for name in "check network bounds directions rounding".split()]
READS = {"seq2seq": "two texts", "word2vec": "windows of words"}  # architectures that read no rows of tokens


@dataclass(frozen=True)
class Export:
    """Write the model of a run for other programs: `apformer export RUN --to gpt2 --out FOLDER`.

    Attributes:
        run: Run directory. The default is the latest run.
        to: Format: safetensors (named parameters), stablehlo (the compiled function), gpt2 (a GPT-2 folder, adapters
            merged), lora (the adapters alone), or proof (a certified model with a program that proves it).
        out: New file or folder. The default is model.safetensors, model.stablehlo, gpt2, lora or proof in the run.
        member: Number of a member of a population. The default is the best on validation rows.
    """

    run: Run = None
    to: Literal["safetensors", "stablehlo", "gpt2", "lora", "proof"] = "safetensors"
    out: FilePath | None = None
    member: int | None = None


def export(args: Export) -> None:
    """Write the file or the folder, and print its path. Raises UserError that names the fault."""
    path = directory.find(args.run)
    settings = restore.load_settings(path)
    out = Path(args.out) if args.out is not None else path / DEFAULTS.get(args.to, args.to)
    if args.to == "stablehlo" and settings.architecture in READS:
        raise UserError(f"{path} reads {READS[settings.architecture]}: give --to safetensors")
    if args.to in ("gpt2", "lora") and settings.architecture != "model":
        raise UserError(f"{path} is not a decoder-only transformer like GPT-2: give --to safetensors")
    if args.to == "proof":
        step = write_proof(out, path, settings, args.member)
    elif args.to == "lora":
        step = write_lora(out, path, settings, args.member)
    else:
        params, step, _ = restore.load_params(path, settings, args.member)
        if args.to == "gpt2":
            tokenizer = path / "tokenizer.json"
            loaded = pretrained.load(tokenizer) if tokenizer.exists() else None
            write_gpt2(out, params, settings.model, loaded, folders.ends(path))
        else:
            write = write_safetensors if args.to == "safetensors" else write_stablehlo
            write(out, settings.architecture, params, settings.model)
    size = sum(file.stat().st_size for file in [out, *out.glob("*")] if file.is_file())
    print(f"{out}: the model of {path} at step {step:,}, {size:,} bytes")


def write_gpt2(folder: Path, params: dict, cfg: Any, tokenizer: Any = None, ends: Sequence[int] = ()) -> None:
    """Write a new GPT-2 folder, with the tokenizer if there is one. Raises UserError as `gpt2.save` does.

    ends: tokens that end a text; the default is <|endoftext|>, or the only special token.

    transformers reads byte pairs. It has no format for characters: only apformer reads these.
    """
    if tokenizer is None:
        gpt2.save(folder, params, cfg, ends)
        return
    special, (_, default) = tokenizer.special_tokens, tokenizer.with_end()
    ends = list(ends or special & {default} or (special if len(special) == 1 else ()))
    gpt2.save(folder, params, cfg, ends)
    pretrained.save(tokenizer, folder / "tokenizer.json")
    if tokenizer.by_characters:
        return
    names = dict.fromkeys(("bos_token", "eos_token"), tokenizer.decode(ends[:1])) if special & {*ends[:1]} else {}
    files.write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"} | names)


def write_lora(folder: Path, run: Path, settings: Settings, member: int | None) -> int:
    """Write a new folder with the adapters of a run, and return their step. Raises UserError as `peft.save` does."""
    adapters = tasks.ability(settings, "adapters", run, "export --to lora")(settings)
    if adapters is None:
        raise UserError(f"{run} has no adapters: train with --lora_rank, or give --to gpt2")
    if settings.training.average > 1:
        raise UserError(
            f"{run} is a mean of {settings.training.average} checkpoints, which is not an adapter of that rank"
            ": give --to gpt2"
        )
    params, step, _ = restore.load_params(run, settings, member, merged=False)
    peft.save(folder, params["adapters"], params=params["base"], cfg=settings.model, **adapters)
    return step


def write_proof(folder: Path, run: Path, settings: Settings, member: int | None = None) -> int:
    """Write a new folder with the certified parameters of a run, and return their step.

    Raises:
        UserError: USAGE without a certificate, if it is of another member, if numpy does not compute the model, or if
            the folder holds files; those of `restore.load_result`.
    """
    contexts: Any = tasks.ability(settings, "contexts", run, "export --to proof")
    place = run / "certificate.json"
    if not place.exists():
        raise UserError(f"{run} has no certificate: run {typed('certify', run)}")
    certificate, params = restore.load_result(run, settings, place.name)
    if member not in (None, certificate["member"]):
        raise UserError(
            f"{place} is of member {certificate['member']}, not of --member {member}"
            f": run {typed('certify', run, '--member', member)}"
        )
    proven = case(settings, contexts, params)
    if proven.fault:
        raise UserError(f"check.py does not compute the model of {run} ({proven.fault}): give --to safetensors")
    if not certificate["theorem"]:
        tell(f"{place} is of a model that is not proven, and check.py will say so")
    files.require_empty(folder)
    with files.disk_errors(folder):
        write_safetensors(folder / "model.safetensors", settings.architecture, params, settings.model)
        files.write_json(folder / "config.json", {part: certificate[part] for part in ("model", "data")})
        shutil.copyfile(place, folder / place.name)
        for program in (*PROGRAMS, *getattr(proven.contexts, "FILES", ())):
            files.write_text(folder / program.name, _alone(program))
        files.write_text(folder / "contexts.py", _alone(Path(str(proven.contexts.__file__))))
    return certificate["step"]


def _alone(program: Path) -> str:
    """Return the text of a file of a package `proof`, with its imports changed for a folder without packages."""
    text = re.sub(r"^from [\w.]*\bproof import", "import", program.read_text("utf-8"), flags=re.MULTILINE)
    return re.sub(r"^from [\w.]*\bproof\.", "from ", text, flags=re.MULTILINE)
