"""Turn settings into `config.json`, and back: the task and the architecture by name, the flags part by part."""

import dataclasses
from pathlib import Path
from typing import Any

from apformer import files, tasks
from apformer.errors import CHECKPOINT, UserError
from apformer.optimizer import Config as Optimizer
from apformer.runs import limits
from apformer.settings import Settings, Training, load_architecture, model_from, part_from

EARLIER = {  # flags of apformer 0.3 that are gone, and what is left of each
    "weighting": "softmax",
    "feedforward_bias": True,
    "norm_bias": True,
    "newton_steps": 0,
    "newton_batches": 8,
    "newton_characters": 8192,
}


def to_dict(settings: Settings) -> dict[str, Any]:
    """Return {"task", "architecture", "flags": {part: its fields}}."""
    parts = dataclasses.asdict(settings)
    return {"task": parts.pop("task"), "architecture": parts.pop("architecture"), "flags": parts}


def from_dict(config: dict, source: Path) -> Settings:
    """Return the settings of a `config.json`.

    Raises:
        UserError: It names the file and the part at fault. Exit code USAGE, if there is no such task or architecture
            here, else CHECKPOINT.
    """
    if "task" not in config:
        old = f"{source} names no task, so it was written by apformer 0.1, or is damaged"
        raise UserError(f"{old}: train anew, or read the run with apformer 0.1", CHECKPOINT)
    try:
        task = tasks.load(config["task"])
        if "architecture" in config:
            load_architecture(config["architecture"])
    except UserError as error:  # such as a run of a package that is not installed
        raise UserError(f"{source}: {error}", error.exit_code) from None
    try:
        parts = config["flags"]
        if config["architecture"] not in task.ARCHITECTURES:
            known = ", ".join(task.ARCHITECTURES)
            raise ValueError(f"architecture {config['architecture']} is none of {known}")
        settings = Settings(
            config["task"],
            config["architecture"],
            part_from(Training, parts["training"]),
            model_from(
                config["architecture"], _of_now(load_architecture(config["architecture"]).Config, parts["model"])
            ),
            part_from(task.Config, parts["data"]),
            part_from(task.Options, parts["options"]),
            part_from(Optimizer, _of_now(Optimizer, parts["optimizer"])),
        )
        limits.check(settings)
    except (KeyError, TypeError, ValueError, AttributeError, UserError) as error:
        sentence = f"{source} is damaged or of another version of apformer ({error}): restore it, or train anew"
        raise UserError(sentence, CHECKPOINT) from None
    return settings


def _of_now(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a part without the flags that apformer 0.3 had, where they ask for what there is."""
    known = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in known or EARLIER.get(name) != value}


def read(path: Path) -> Settings:
    """Return the settings of the run at a Path. Raises UserError (exit CHECKPOINT) if its config.json is damaged."""
    return from_dict(read_config(path), path / "config.json")


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises UserError (exit CHECKPOINT) if it is damaged."""
    config = files.read_json(path / "config.json")
    if not isinstance(config, dict):
        raise UserError(f"{path / 'config.json'} holds no settings: restore the file, or train anew", CHECKPOINT)
    return config
