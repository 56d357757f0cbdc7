"""Copy the lines of metrics.jsonl to TensorBoard or Weights & Biases, by their own libraries.

    runs/NAME/tensorboard/    event files: `tensorboard --logdir runs` shows them (pip install tensorboard)
    runs/NAME/wandb/          files of `wandb`; with WANDB_MODE=offline it needs no network

metrics.jsonl stays the source. `logged.json` in either folder holds the last step that was copied, so a resumed run
copies only the missing lines. If the folder is removed, all lines are copied again. This helps after a machine has
stopped suddenly: wandb 0.31 keeps up to 15 seconds of lines in memory.

A failure here never stops a run.
"""

import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from apformer import files
from apformer.errors import CHECKPOINT, UserError, typed
from apformer.report import progress


def require(log_to: str) -> None:
    """Require the library of `--log_to`.

    Raises:
        UserError: Exit code USAGE, with the command that installs the library.
    """
    try:
        if log_to == "tensorboard":
            import tensorboardX  # noqa: F401
        if log_to == "wandb":
            import wandb  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        fault = f"--log_to {log_to} needs the {log_to} extra"
        raise UserError(f'{fault}: pip install "apformer[{log_to}]"') from None


class Tracker:
    """The log of one run. After its first failure, which is printed, nothing more is written."""

    def __init__(self, log_to: str, path: Path, config: dict, read: Callable[[], Iterable[dict]]) -> None:
        """Start or continue a log, and write the missing lines.

        Args:
            log_to: tensorboard or wandb.
            path: Directory of the run.
            config: Settings of the run, which wandb shows.
            read: Function that returns all lines of metrics.jsonl.
        """
        self.log_to, self.path, self.file, self.works = log_to, path, path / log_to / "logged.json", True
        self.end: Callable[[bool], Any] = lambda failed: None
        with self._catching():
            require(log_to)
            self.file.parent.mkdir(exist_ok=True)
            self.logged = read_logged(self.file) or {"step": 0, "id": uuid.uuid4().hex[:12]}
            begin = _tensorboard if log_to == "tensorboard" else _wandb
            self.log, self.end = begin(self.file.parent, self.logged, config)
            for record in read():
                self.write(record)

    def write(self, record: dict) -> None:
        """Write a line of metrics.jsonl, unless its step has been written."""
        if self.works and record["step"] > self.logged["step"]:
            with self._catching():
                # The step is recorded first: a process that is killed between the two must not write a line twice.
                files.write_json(self.file, self.logged | {"step": record["step"]})
                try:
                    self.log(record["step"], scalars(record))
                except BaseException:
                    files.write_json(self.file, self.logged)
                    raise
                self.logged["step"] = record["step"]

    def close(self, failed: bool) -> None:
        """Close the log; failed: whether the run ended before its last step."""
        if self.works:
            with self._catching():
                self.end(failed)

    @contextmanager
    def _catching(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.works = False
            reason = str(error).partition("\n")[0] or type(error).__name__
            remedy = f"the run continues without it, and {typed('resume', self.path)} writes what is missing"
            with suppress(OSError):
                progress.write(f"--log_to {self.log_to} has failed ({reason}): {remedy}")
            with suppress(Exception):
                self.end(True)


def renew(folder: Path, step: int) -> None:
    """Forget what was logged if it goes beyond a step, so that the tracker writes the run anew.

    A run that continues from the step by another schedule has no such lines any more.
    """
    with suppress(UserError):  # a damaged one is named later
        if (logged := read_logged(folder / "logged.json")) and logged["step"] > step:
            (folder / "logged.json").unlink()


def scalars(record: dict) -> dict[str, float]:
    """Return {name: number} of the finite numbers of a line; members of a population have names such as loss/3."""
    numbers = {}
    for name, value in files.plain(record).items():
        if isinstance(value, list):
            numbers |= {f"{name}/{member}": number for member, number in enumerate(value)}
        else:
            numbers[name] = value
    return {name: value for name, value in numbers.items() if value is not None and name != "step"}


def read_logged(file: Path) -> dict | None:
    """Return {"step", "id"}, the last step written and wandb's id of the run; None if there is no file.

    Raises:
        UserError: Exit code CHECKPOINT, if the file is damaged.
    """
    if not file.exists():
        return None
    logged = files.read_json(file)
    if not files.has(logged, {"step": int, "id": str}) or re.fullmatch("[0-9a-f]{12}", logged["id"]) is None:
        raise UserError(f"{file} is damaged: remove {file.parent}, so that all is written anew", CHECKPOINT)
    return logged


def _tensorboard(folder: Path, logged: dict, config: dict) -> tuple[Callable, Callable]:
    """Return log(step, scalars) and end(failed) of a new event file in a folder."""
    # SummaryWriter of tensorboardX writes in a thread, and waits for it forever if a full disk has killed it.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    events = EventsWriter(str(folder / "events"), f".{os.getpid()}.{logged['step']}")
    # TensorBoard drops the events of later steps, which another schedule has left.
    events.write_event(Event(step=logged["step"] + 1, session_log=SessionLog(status=SessionLog.START)))

    def log(step: int, scalars: dict[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        events.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        events.flush()

    return log, lambda failed: events.close()


def _wandb(folder: Path, logged: dict, config: dict) -> tuple[Callable, Callable]:
    """Return log(step, scalars) and end(failed) of the wandb run with the id of `logged`, which may be new."""
    import wandb  # pyright: ignore[reportMissingImports]

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "apformer"),
        id=logged["id"],
        name=folder.parent.name,
        dir=str(folder.parent),
        config=config,
        resume="allow",
        settings=wandb.Settings(console="off", finish_timeout=60),  # seconds; unsent lines stay on the disk
    )
    return lambda step, scalars: run.log(scalars, step=step), lambda failed: run.finish(exit_code=int(failed))
