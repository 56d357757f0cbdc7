"""The source run of `--init_from`, and the flags that must agree with it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apformer import files
from apformer.errors import UserError
from apformer.settings import Settings
from apformer.tasks import settings_file


def read(folder: str | Path, task: str) -> Settings:
    """Read the settings of a run.

    Args:
        folder: Directory of the run.
        task: Name of its task.

    Raises:
        UserError: USAGE for a folder that holds no run of this task, CHECKPOINT if its config.json is damaged.
    """
    file, remedy = Path(folder) / "config.json", f"name a run of {task}"
    if not os.path.isdir(folder):  # pathlib raises where a name is too long
        raise UserError(f"{folder} is not a directory: {remedy}")
    if not file.is_file():
        raise UserError(f"{folder} holds no run (no config.json): {remedy}")
    config = files.read_json(file)
    if isinstance(config, dict) and (other := config.get("task", task if "flags" in config else None)) != task:
        raise UserError(f"{folder} is {f'a run of {other}' if other else 'no run'}: {remedy}")
    return settings_file.from_dict(config, file)


def require_same(part: Any, run_part: Any, names: Iterable[str], folder: str) -> None:
    """Raise UserError (exit USAGE) for the first field in which the flags differ from the run in the folder."""
    for name in names:
        value, other = getattr(part, name), getattr(run_part, name)
        if value != other:
            fault = f"--{name} {value} contradicts --init_from {folder}, whose {name} is {other}"
            raise UserError(f"{fault}: drop the flag")
