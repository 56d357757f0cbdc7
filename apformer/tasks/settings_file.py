"""Turn settings into `config.json`, and back: the task and the architecture by name, the flags part by part.

`check` refuses settings that no run can follow.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from apformer import files, tasks
from apformer.errors import CHECKPOINT, UserError, typed
from apformer.flags import require, require_whole
from apformer.optimizer import Config as Optimizer
from apformer.plugins import Fault
from apformer.settings import Settings, Training, architecture_of, load_architecture, model_from, part_from

FAULTS = (KeyError, TypeError, ValueError, AttributeError, UserError)  # of settings from a file
EARLIER = {  # removed flags of apformer 0.3, and the only value that is still supported
    "weighting": "softmax",
    "feedforward_bias": True,
    "norm_bias": True,
    "sequences": 10_000,
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
        UserError: It names the file and the part at fault. Exit code USAGE, if a plugin of that name is missing or
            broken, else CHECKPOINT.
    """
    try:
        return _from_dict(config)
    except Fault as error:  # such as the task of a package that is not installed
        raise UserError(f"{source}: {error}", error.exit_code) from None
    except FAULTS as error:
        sentence = f"{source} is damaged or of another version of apformer ({error}): restore it, or train anew"
        raise UserError(sentence, CHECKPOINT) from None


def _from_dict(config: dict) -> Settings:
    if not files.has(config, {"task": str, "architecture": str}):
        raise ValueError("it names no task or no architecture")
    task, architecture = tasks.load(config["task"]), load_architecture(config["architecture"])
    parts = config["flags"]
    if config["architecture"] not in task.ARCHITECTURES:
        names = ", ".join(task.ARCHITECTURES)
        raise ValueError(f"architecture {config['architecture']} is none of {names}")
    settings = Settings(
        config["task"],
        config["architecture"],
        part_from(Training, parts["training"]),
        model_from(config["architecture"], _without_earlier(architecture.Config, parts["model"])),
        part_from(task.Config, _without_earlier(task.Config, parts["data"])),
        part_from(task.Options, parts["options"]),
        part_from(Optimizer, _without_earlier(Optimizer, parts["optimizer"])),
    )
    check(settings)
    return settings


def require_storable(settings: Settings) -> None:
    """Refuse settings that config.json would not give back. Raises Fault, a UserError."""
    try:
        if _from_dict(json.loads(json.dumps(to_dict(settings)))) == settings:
            return
        reason = "they change"
    except FAULTS as error:
        reason = str(error)
    fields = "of a package is a number, a text, a bool, None or a tuple of them"
    raise Fault(f"config.json cannot hold these settings ({reason}): see that each field {fields}")


def _without_earlier(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a part without the removed flags of apformer 0.3 that have a supported value."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names or EARLIER.get(name) != value}


def read(path: Path) -> Settings:
    """Return the settings of the run at a Path. Raises UserError (exit CHECKPOINT) if its config.json is damaged."""
    return from_dict(files.read_json(path / "config.json"), path / "config.json")


def more_steps(settings: Settings, path: str | Path) -> str:
    """Return a sentence that says how the run at a path is trained for more steps."""
    steps = 2 * settings.training.steps
    if settings.training.patience:  # a resumed run would stop at once
        return f"`apformer train` with the flags of this run and --steps {steps} --patience 0 trains longer."
    return f"{typed('resume', path, '--steps', steps)} trains further."


def check(settings: Settings) -> None:
    """Refuse settings that no run can follow.

    Raises:
        UserError: Exit code USAGE; it names the flag and what fits.
    """
    run, rule = settings.training, settings.optimizer
    for flag in ("steps", "batch_size", "accumulate", "members", "log_every", "save_every", "keep", "average"):
        require_whole(flag, run)
    require_whole("muon_every", rule)
    require_whole("patience", run, 0)
    require_whole("warmup_steps", rule, 0)
    for flag, part in {"ema": run, "beta1": rule, "beta2": rule}.items():
        require(flag, 0 <= getattr(part, flag) < 1, part, "at least 0 and less than 1")
    require("learning_rate", 0 < rule.learning_rate < 10, rule, "more than 0 and less than 10")
    require("weight_decay", 0 <= rule.weight_decay < 10, rule, "at least 0 and less than 10")
    require("max_grad_norm", 0 < rule.max_grad_norm < math.inf, rule, "more than 0")
    require_whole("seed", run, 0, 2**31 - run.members)
    require("min_lr", 0 <= rule.min_lr <= rule.learning_rate, rule, f"0 to --learning_rate, {rule.learning_rate}")
    if run.average > run.keep:
        raise UserError(f"--average {run.average} is of more checkpoints than --keep {run.keep}: keep as many")
    if run.remat and settings.architecture not in ("model", "seq2seq"):
        raise UserError("--remat is for transformers: drop it")
    shape = vars(settings.model)
    for field in dataclasses.fields(settings.model):  # a whole number has to fit the axis of an array
        if field.type in (int, int | None) and shape[field.name] is not None:
            require_whole(field.name, settings.model)
    require("norm_epsilon", 0 < shape.get("norm_epsilon", 1e-5) < 1, settings.model, "more than 0 and less than 1")
    require("embedding_std", 0 <= (shape.get("embedding_std") or 0) < math.inf, settings.model, "at least 0")
    longest = tasks.of(settings).check(settings)
    most = architecture_of(settings).max_tokens(settings.model)
    if most is not None and most < longest:
        less = next((f", or a smaller --{name}" for name in ("context", "longest") if hasattr(settings.data, name)), "")
        raise UserError(f"--max_len {most} ends before the longest row: give {longest} or more{less}")
