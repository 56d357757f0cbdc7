"""Begin a run: write its settings, the description of its data, and the files of its task."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from apformer import files, tasks
from apformer.errors import tell
from apformer.machine import processes
from apformer.runs import provenance
from apformer.runs.fit import abstract_state
from apformer.settings import Settings
from apformer.tasks import settings_file


def begin(path: Path, settings: Settings, rows: Any, start_params: Any = None, members: Sequence = ()) -> None:
    """Write config.json of a new run, and the files of its task.

    start_params: see `initial_state`. members: of a sweep, (seed, flags of the optimizer) of each.
    """
    task = tasks.of(settings)
    data = task.describe(settings, rows)
    processes.agree("data", data)
    config = settings_file.to_dict(settings) | {
        "versions": provenance.versions(),
        "environment": provenance.environment(),
        "directory": [os.getcwd(), os.path.relpath(".", path)],  # that relative paths among the flags start from
        "data": data,
    }
    if members:
        config["members"] = members
    if start_params is not None:
        config["init_from_sha256"] = provenance.digest(start_params)
    texts = task.files(rows)
    config["files"] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    files.write_json(path / "config.json", config)
    for name, text in texts.items():
        files.write_text(path / name, text)
    run, params = settings.training, abstract_state(settings).params

    def count(part: Any) -> str:
        return f"{sum(leaf.size for leaf in jax.tree.leaves(part)) // run.members:,}"

    sizes = f"{count(params)} parameters"
    if hasattr(task, "adapters") and task.adapters(settings):
        sizes = f"{count(params['adapters'])} of {sizes} trained"
    tell(f"{path}: {sizes}, {run.steps:,} steps")
