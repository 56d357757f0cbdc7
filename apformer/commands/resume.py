"""Continue a run that was stopped, bit for bit."""

from dataclasses import dataclass

import jax

from apformer.commands import Run
from apformer.commands.train import go_on
from apformer.machine import processes
from apformer.runs import directory


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped. It ends with the same bits as an undisturbed run.

    A damaged checkpoint is named and set aside, and training continues from the one before.

    Attributes:
        run: Run directory. The default is the latest run.
        step: Saved step to continue from; later steps are deleted. Default: the newest that is sound.
        steps: New number of optimizer steps of the run, to train it longer. From here on, the learning rate follows
            the new number.
    """

    run: Run = None
    step: int | None = None
    steps: int | None = None


def resume(args: Resume) -> None:
    """Resume a run from its newest checkpoint, or from a saved step; start it anew if none was saved yet."""
    path = directory.find_begun(args.run)
    if jax.process_index():
        path = processes.scratch(path)
    processes.most(0)  # waits for all: none may write before all have read
    go_on(path, args.step, args.steps)
