"""Print versions, devices and disk space; verify a run or a model, or compare a GPT-2 with the published one."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
from tyro.conf import Positional, arg

from apformer import files
from apformer.commands import Run
from apformer.errors import UserError, found, tell
from apformer.files import FilePath
from apformer.formats import gpt2, published
from apformer.machine import compiler, refusals
from apformer.runs import directory, provenance
from apformer.runs.findings import findings
from apformer.tasks.text import folders
from apformer.tokenizers import pretrained
from apformer.tokenizers.text import for_model


@dataclass(frozen=True)
class Doctor:
    """Print versions, devices, disk space, permissions, and whether XLA computes rightly.

    With a folder, verify the run or the GPT-2 in it. `apformer doctor gpt2 FOLDER` compares a GPT-2 with the published.

    Attributes:
        run: Run directory to verify: each file, and that the files agree. Nothing is changed. Or a GPT-2 folder, whose
            weights and tokenizer are read. Or the word gpt2, before a folder.
        folder: After the word gpt2: GPT-2 folder whose sizes, shapes and SHA-256 are compared with the published ones.
        json: Print one JSON object.
    """

    run: Run = None
    folder: Positional[Annotated[FilePath | None, arg(metavar="[FOLDER]")]] = None
    json: bool = False


def verify(args: Doctor) -> None:
    """Print the state of each part of a folder. Raises UserError afterwards if a part is not sound."""
    path = args.folder or args.run or ""
    lacks_folder = not os.path.isdir(path) if args.run == "gpt2" else args.folder
    if lacks_folder:
        words = " ".join(filter(None, (args.run, args.folder)))
        raise UserError(f"{words} names no folder: give one after gpt2, as in `apformer doctor gpt2 FOLDER`")
    if args.folder:
        results = published.findings(path)
    elif folders.holds_gpt2(path):
        results = [found("weights", published.weights, Path(path)), found("tokenizer", _tokenizer, path)]
    else:
        path = directory.find_begun(args.run)
        results = findings(path)
    if args.json:
        print(json.dumps({"run": str(path), "findings": [finding._asdict() for finding in results]}))
    else:
        for finding in results:
            print(f"{'FAULT' if finding.code else 'sound':6} {finding.what:18}{finding.says}")
    faults = {finding.what: finding.code for finding in results if finding.code}
    if faults:
        raise UserError(
            f"{path} is not sound ({', '.join(faults)}): follow the lines marked FAULT", next(iter(faults.values()))
        )


def _tokenizer(folder: str) -> str:
    rows = gpt2.read_config(Path(folder, "config.json")).vocab_size
    return f"{for_model(pretrained.load(folder), rows, folder).vocab_size:,} tokens"


def doctor(args: Doctor) -> None:
    """Print the facts of `examine`, or `verify` a folder.

    Raises:
        UserError: Afterwards, if a run here would fail: DISK, or USAGE without JAX.
    """
    if args.run is not None:
        verify(args)
        return
    facts, fault = examine()
    if args.json:
        print(json.dumps(facts))
    else:
        for name, fact in (facts.pop("versions") | facts).items():
            fact = ", ".join(fact) if isinstance(fact, list) else fact
            print(f"{name:18}{'none' if fact in (None, '') else fact}")
    if facts["wrong_programs"]:
        programs = " and ".join(facts["wrong_programs"])
        fault_of_jaxlib = f"this jaxlib computes some sums of products wrongly (test programs: {programs})"
        tell(f"{fault_of_jaxlib}: set {compiler.REMEDY}, or install another jaxlib; a proof by numpy is not affected")
    if fault:
        raise fault


def examine() -> tuple[dict[str, Any], UserError | None]:
    """Return versions, devices, processors, free disk and permissions, and the error that a run here would end with."""
    place, reason = "runs" if os.path.isdir("runs") else ".", refusals.without_backend()
    devices = [] if reason else jax.devices()
    wrong = compiler.wrong() if devices else []
    fault = None
    try:
        files.preflight(place, needs=0)
    except UserError as error:
        fault = error
    facts = {
        "versions": provenance.versions(),
        "backend": jax.default_backend() if devices else None,
        "devices": [f"{device.id}: {device.device_kind}" for device in devices],
        "computes": bool(devices) and not wrong,
        "wrong_programs": wrong,
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "free_disk_gb": round(shutil.disk_usage(place).free / 1e9, 1),
        "directory": os.path.abspath(place),
        "writable": fault is None,
        "compilation_cache": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
    }
    return facts, fault or (UserError(reason) if reason else None)
