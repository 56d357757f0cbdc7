"""Folders with a language model: runs of the task text, and GPT-2 folders."""

import json
import os
from pathlib import Path
from typing import Any

from apformer.errors import UserError
from apformer.files import AnyPath
from apformer.formats import gpt2, model_folder
from apformer.tasks import source_run

DOWNLOAD = "hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2"
HOW_TO_GET = f"`{DOWNLOAD}` fetches the published GPT-2"


def is_gpt2(folder: AnyPath) -> bool:
    """Return whether a folder is a GPT-2 folder rather than a run. Raises UserError (exit USAGE) if it is neither."""
    path = Path(folder)
    if not os.path.isdir(path):
        raise UserError(f"{path} is not a directory: name a run or a GPT-2 folder; {HOW_TO_GET}")
    try:
        config = json.loads((path / "config.json").read_bytes())
    except FileNotFoundError:
        needed = "name a run of a text, or a GPT-2 folder with config.json and model.safetensors"
        if snapshots := sorted(path.glob("snapshots/*/config.json")):  # a folder of the cache of `hf`
            needed = f"give {snapshots[-1].parent}"
        if (path / "adapter_config.json").exists():
            needed = f"give the folder of its model (`apformer generate` and evaluate add --adapter {path})"
        raise UserError(f"{path} holds no model (no config.json): {needed}; {HOW_TO_GET}") from None
    except (OSError, ValueError, RecursionError):  # the reader of the folder reports the fault
        return not (path / "checkpoints").exists()
    return isinstance(config, dict) and "flags" not in config


def holds_gpt2(folder: AnyPath) -> bool:
    """Return whether a path is a GPT-2 folder, and no run, not even a damaged one. Raises nothing."""
    is_run = any(os.path.exists(os.path.join(folder, name)) for name in ("checkpoints", "metrics.jsonl", ".lock"))
    return not is_run and os.path.isfile(os.path.join(folder, "config.json")) and is_gpt2(folder)


def ends(folder: AnyPath) -> list[int]:
    """Return the ids of tokens that end a text, by generation_config.json or config.json of a folder."""
    paths = (Path(folder) / name for name in ("generation_config.json", "config.json"))
    values = (model_folder.read_json(path, "restore it").get("eos_token_id") for path in paths if path.exists())
    found = next((value for value in values if value is not None), None)
    return [token for token in (found if isinstance(found, list) else [found]) if type(token) is int]


def require_adaptable(folder: AnyPath) -> None:
    """Refuse a GPT-2 whose layers divide scores: `gpt2.load` divides the queries instead, and adapters would not fit.

    Raises:
        UserError: Exit code USAGE.
    """
    if model_folder.read_json(Path(folder, "config.json"), "restore it").get("scale_attn_by_inverse_layer_idx"):
        fault = f"{folder} has scale_attn_by_inverse_layer_idx, for which there are no adapters here"
        raise UserError(f"{fault}: train all weights, or merge an adapter with `peft`")


def read_config(folder: AnyPath) -> tuple[str, Any]:
    """Return (architecture, Config) of the language model in a folder. Raises UserError if there is none."""
    path = Path(folder)
    if is_gpt2(path):
        return "model", gpt2.read_config(path / "config.json")
    source = source_run.read(path, "text")
    return source.architecture, source.model
