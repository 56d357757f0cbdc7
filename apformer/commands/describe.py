"""Describe a model part by part, with shapes and numbers of parameters: describe RUN, or describe --d_model 64 ..."""

from dataclasses import dataclass
from typing import Any

import jax

from apformer import tasks
from apformer.commands import Run
from apformer.flags import parse
from apformer.layers.leaves import named
from apformer.report import tables
from apformer.runs import directory, recipes, restore
from apformer.settings import architecture_of

PROGRAM = "apformer describe"


@dataclass(frozen=True)
class Describe:
    """Describe the model of a run: its parts, their shapes and numbers of parameters.

    With flags of `apformer train` in place of a run, describe the model that they would train.

    Attributes:
        run: Run directory. The default is the latest run.
    """

    run: Run = None


def main(args: list[str]) -> None:
    """Run the command with its arguments."""
    if args and args[0].startswith("--") and args[0] != "--help":
        settings = recipes.parse(args, PROGRAM)
        settings, _ = tasks.of(settings).load(settings)
    else:
        settings = restore.load_settings(directory.find_begun(parse(Describe, args, PROGRAM).run))
    init, cfg = architecture_of(settings).init, settings.model
    leaves: dict[str, Any] = named(jax.eval_shape(lambda: init(jax.random.key(0), cfg)))
    parts = [[name, " x ".join(map(str, leaf.shape)) or "1", f"{leaf.size:,}"] for name, leaf in leaves.items()]
    total = [settings.architecture, "", f"{sum(leaf.size for leaf in leaves.values()):,}"]
    print("\n".join(tables.columns([["part", "shape", "parameters"], *parts, total])))
