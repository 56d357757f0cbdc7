"""Make, lock and find the directories of runs.

    runs/20261120-213259-exact/
        config.json      flags, versions and data;
        metrics.jsonl    one JSON object a line;
        checkpoints/     one directory a saved step (apformer/runs/checkpoint.py);
        .lock            held while a process trains here.
    runs/latest          a link to the newest run; where there are no links, the newest is found by its name

config.json is written whole or not at all, and metrics.jsonl grows by whole lines (apformer/files.py).
"""

import errno
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from apformer.errors import CHECKPOINT, DISK, LOCKED, UserError, tell, typed
from apformer.files import disk_errors, force, has, preflight, read_json, require_empty, truncate_after
from apformer.runs import selection
from apformer.tasks.text import folders

RUNS = Path("runs")
MINUTE = 60  # seconds; no file takes longer to write
UNABLE = (errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV)  # errors of a disk that lacks the call


def create(recipe: str, run_dir: str | Path | None = None, needs: float = 0) -> Path:
    """Make the directory of a new run, check that it can be written, and return its Path.

    Args:
        recipe: Recipe of the run. Its directory is `runs/<UTC time>-<recipe>`, and the link `runs/latest` leads there.
        run_dir: New or empty directory to use instead; the link is not changed.
        needs: Number of bytes that the run will write.

    Raises:
        UserError: USAGE if run_dir holds a run or other files, DISK if it cannot be written or the disk is too full.
    """
    if run_dir is not None:
        path = Path(run_dir)
        if any(os.path.exists(path / name) for name in ("config.json", "metrics.jsonl", "checkpoints")):
            raise UserError(
                f"--run_dir {path} already holds a run: resume it with {typed('resume', path)}, or give "
                "another --run_dir"
            )
        require_empty(path)
        preflight(path, needs)
        return path
    path = begun = dated(recipe)
    with disk_errors(RUNS):
        RUNS.mkdir(exist_ok=True)
    preflight(RUNS, needs)
    for attempt in count(2):
        with disk_errors(path), suppress(FileExistsError):
            path.mkdir()
            break
        path = RUNS / f"{begun.name}-{attempt}"
    with suppress(OSError):  # a file system without links has no `latest`: see `named`
        link = path / ".latest"
        link.symlink_to(path.name)
        try:
            link.replace(RUNS / "latest")
        except OSError:
            link.unlink()
    return path


def dated(kind: str) -> Path:
    """Return the Path runs/<UTC time>-<kind>, without making it."""
    return RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{kind}"


def find(run: str | Path | None = None) -> Path:
    """Return the Path of a run that has a configuration and a checkpoint.

    Args:
        run: Run directory, or a path that ends with `latest`; None for `runs/latest`.

    Raises:
        UserError: USAGE if it is missing or no run, CHECKPOINT if nothing was saved in it.
    """
    path = find_begun(run)
    if not saved(path):
        raise UserError(
            f"{path} holds no checkpoint: if it is a run, {typed('resume', path)} begins it anew", CHECKPOINT
        )
    return path


def find_begun(run: str | Path | None = None) -> Path:
    """Return the Path of a run that perhaps has no checkpoint yet. Raises UserError(USAGE) as `find`."""
    path = Path(named(RUNS / "latest" if run is None else run))
    if run is None and not os.path.lexists(path):
        raise UserError(f"{RUNS} has no latest run: train one with `apformer train`, or name the directory of a run")
    # os.path answers False where a name is too long or a link loops; pathlib raises.
    if not os.path.isdir(path):
        raise UserError(f"{path} is not a directory: name one that `apformer train` wrote")
    if not (path / "config.json").is_file():
        raise UserError(f"{path} holds no run (no config.json): name a directory that `apformer train` wrote")
    if folders.holds_gpt2(path):
        raise UserError(f"{path} is a GPT-2 folder: name a directory that `apformer train` wrote")
    return path


def named(run: str | Path) -> str:
    """Return the directory that `latest` names now, since a newer run changes that; other paths as they are.

    On a file system without links, `latest` is the newest run by its name.
    """
    latest = Path(os.path.expanduser(run))
    if latest.name != "latest":
        return str(latest)
    if not os.path.islink(latest):  # a copy of runs/ may have a folder in its place
        return str(max((file.parent for file in latest.parent.glob("[0-9]*-*/config.json")), default=latest))
    path = latest.parent / os.readlink(latest)
    if not os.path.isdir(path):
        raise UserError(f"{latest} names {path}, which is gone: name the directory of another run")
    return str(path)


def saved(path: Path) -> bool:
    """Return whether a run has a checkpoint, be it damaged. Raises UserError as `selection.steps` does."""
    return bool(selection.steps(path / "checkpoints")) or any(path.glob("checkpoints/[0-9]*.corrupt"))


def recorded(path: Path, key: str, kind: type = dict) -> Any:
    """Return a value of config.json; the empty value of `kind` if it is missing or of another type."""
    config = read_json(path / "config.json")
    return config[key] if has(config, {key: kind}) else kind()


def forget_after(path: Path, step: int) -> None:
    """Remove what is later than a step from a run: checkpoints, lines of metrics, results of removed checkpoints."""
    folder = path / "checkpoints"
    for saved_step in reversed(selection.steps(folder)):
        if saved_step > step:
            selection.remove(folder, saved_step)
    for name in ("evaluation.json", "certificate.json"):
        with suppress(UserError, TypeError, KeyError):
            if read_json(path / name)["step"] in selection.steps(folder):
                continue
        with disk_errors(path):
            (path / name).unlink(missing_ok=True)
    for name in ("metrics.jsonl", "missed.jsonl"):
        truncate_after(path / name, step)


@contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Lock `run_dir` for this process; the system unlocks it when the process ends, however it ends.

    Raises UserError(LOCKED) naming the process that holds it.
    """
    path = run_dir / ".lock"
    with disk_errors(path):
        file = open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(f"{run_dir} is in use by {holder}: wait until it ends, or stop it", LOCKED) from None
        except OSError:  # as on some network file systems
            tell(f"the disk of {run_dir} has no locks: start no second process on this run")
        with disk_errors(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            _probe(run_dir)
        for torn in run_dir.glob(".*.tmp"):
            with suppress(FileNotFoundError), disk_errors(torn, "remove"):
                if abs(time.time() - torn.stat().st_mtime) > MINUTE:  # the clock may have gone back
                    torn.unlink()
        yield


def _probe(run_dir: Path) -> None:
    """Raise UserError (exit DISK) if a run cannot be saved on this disk, before any training."""
    place = run_dir / ".probe"
    action = "append to files"
    shutil.rmtree(place, ignore_errors=True)
    (place / "folder").mkdir(parents=True)
    try:
        for _ in range(2):
            with open(place / "file", "ab") as file:
                file.write(b"line")
        if (place / "file").stat().st_size != 8:
            raise OSError(errno.ENOTSUP, "the second line takes the place of the first")
        action = "force files to the disk"
        for path in (place / "file", place):
            force(path)
        action = "rename folders"
        os.rename(place / "folder", place / "other")
    except OSError as error:
        if error.errno not in UNABLE:
            raise
        raise UserError(
            f"the disk of {run_dir} cannot {action} ({error.strerror}), so no checkpoint would be safe there"
            ": give a --run_dir on another disk",
            DISK,
        ) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)
