"""The directory of a run: made once, locked while in use, never overwritten, found again by name.

    runs/20261120-213259-exact/
        config.json      the flags, the versions and the data that the run came from
        metrics.jsonl    one JSON object a line
        checkpoints/     one directory a saved step (apformer/runs/checkpoint.py)
        .lock            held while a process trains here
    runs/latest          the name of the newest run

Whatever is written whole is written to a temporary file, forced to the disk and renamed, so that a reader finds the
old text or the new, never half of one.
"""

import errno
import fcntl
import importlib.metadata
import json
import math
import os
import platform
import shutil
import socket
import tempfile
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from apformer.errors import CHECKPOINT, DISK, LOCKED, USAGE, UserError

PACKAGES = ("apformer", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def create(recipe, run_dir=None, *, root="runs", needs=0):
    """Make the directory of a new run and check, before any training, that it can be written.

    recipe: str, ends the directory's name. run_dir: a new or empty directory instead of `root/<UTC time>-<recipe>`.
    needs: bytes that the run will write. Returns its Path; in `root`, the file `latest` then names it.
    Raises UserError: USAGE if run_dir holds a run or other files, DISK if it cannot be written or the disk is too full.
    """
    if run_dir is not None:
        path = Path(run_dir)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            files = {file.name for file in path.iterdir()} - {".lock"}
        if files & {"config.json", "metrics.jsonl", "checkpoints"}:
            remedy = f"resume it with `apformer resume {path}`, or give another --run_dir"
            raise UserError(f"--run_dir {path} already holds a run: {remedy}", USAGE)
        if files:
            raise UserError(f"--run_dir {path} holds other files: give a new or an empty directory", USAGE)
        preflight(path, needs)
        return path
    root, name = Path(root), dated(recipe).name
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
    preflight(root, needs)
    for attempt in count(1):
        path = root / (name if attempt == 1 else f"{name}-{attempt}")
        with disk_errors(path), suppress(FileExistsError):
            path.mkdir()
            break
    write_text(root / "latest", path.name + "\n")
    return path


def dated(kind):
    """The Path runs/<UTC time>-<kind>, which is not made."""
    return Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{kind}"


def preflight(directory, needs):
    """Raise UserError(DISK) unless `directory` can be written and its disk has `needs` bytes free."""
    with disk_errors(directory):
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"apformer")
            file.flush()
        free = shutil.disk_usage(directory).free
    if free < needs:
        sizes = f"{free / 1e6:,.0f} MB free and this takes about {math.ceil(needs / 1e6):,} MB"
        raise UserError(f"the disk of {directory} has {sizes}: free some space, or give another --run_dir", DISK)


def find(run=None, *, root="runs"):
    """The Path of a run that has a configuration and a checkpoint: `run`, or the one that `root/latest` names.

    Raises UserError: USAGE if it is missing or no run, CHECKPOINT if nothing was saved in it.
    """
    if run is None:
        latest = Path(root) / "latest"
        if not latest.is_file():
            raise UserError(f"{root} holds no run yet: train one with `apformer train`, or name its directory", USAGE)
        run = Path(root) / read_text(latest).strip()
        if not run.is_dir():
            raise UserError(f"{latest} names {run}, which is gone: name the directory of another run", USAGE)
    path = Path(run)
    # os.path answers False where a name is too long or a link loops; pathlib raises.
    if not os.path.isdir(path):
        raise UserError(f"{path} is not a directory: name one that `apformer train` wrote", USAGE)
    if not (path / "config.json").is_file():
        raise UserError(f"{path} holds no run (no config.json): name a directory that `apformer train` wrote", USAGE)
    if not any(path.glob("checkpoints/*/MANIFEST.json")):
        raise UserError(f"{path} stopped before its first checkpoint: train anew with `apformer train`", CHECKPOINT)
    return path


def versions():
    """Versions of Python and of the packages a run depends on, {name: version}; None for what is not installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


@contextmanager
def lock(run_dir):
    """Hold `run_dir` for this process alone; the system lets go when the process ends, however it ends.

    Raises UserError(LOCKED) naming the process that holds it.
    """
    path = Path(run_dir) / ".lock"
    with disk_errors(path):
        file = open(path, "a+", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(f"{run_dir} is in use by {holder}: wait until it ends, or stop it", LOCKED) from None
        except OSError:
            pass  # Some network file systems have no locks; there a run goes on without one.
        with disk_errors(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        yield


def append_record(path, record):
    """Append a dict to a JSON-lines file; it is in the file, whole, when this returns. Raises UserError(DISK)."""
    line = json.dumps(_plain(record), allow_nan=False) + "\n"
    with disk_errors(path), open(path, "a", encoding="utf-8") as file:
        file.write(line)


def truncate_after(path, step):
    """Cut a JSON-lines file back to its records of `step` and before, and drop a line that was torn by a crash."""

    def kept(line):
        try:
            record = json.loads(line)
        except ValueError:
            return False
        return isinstance(record, dict) and record.get("step", step) <= step

    if Path(path).exists():
        with disk_errors(path):
            lines = Path(path).read_bytes().splitlines()
        write_text(path, "".join(line.decode("utf-8") + "\n" for line in lines if kept(line)))


def write_json(path, value):
    """Write `value` as JSON, whole or not at all; numbers that are not finite become null. Raises UserError(DISK)."""
    write_text(path, json.dumps(_plain(value), indent=1, allow_nan=False) + "\n")


def read_json(path):
    """The value in a JSON file. Raises UserError(CHECKPOINT) naming the file if it is missing or broken."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}): restore the file, or train anew", CHECKPOINT) from None


def read_text(path):
    """The text of a file of a run. Raises UserError(CHECKPOINT) naming the file if it cannot be read."""
    try:
        return Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): restore the file, or train anew", CHECKPOINT) from None


def write_text(path, text):
    """Write `text` to a file, whole or not at all, and on the disk when this returns. Raises UserError(DISK)."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path, data):
    """Write bytes to a file, whole or not at all, and on the disk when this returns. Raises UserError(DISK)."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            temporary.write_bytes(data)
            fsync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        fsync(path.parent)


def fsync(path):
    """Force a file or a directory to the disk, where its file system can do that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path, verb="write"):
    """Turn an OSError of the body into UserError(DISK), one sentence that names `path` and the remedy."""
    try:
        yield
    except OSError as error:
        reason, remedy = error.strerror or error, "mend that, or use another directory"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason, remedy = "the disk is full", "free some space, then resume the run"
        raise UserError(f"cannot {verb} {path} ({reason}): {remedy}", DISK) from error


def _plain(value):
    """`value` in JSON's own types: array scalars as numbers, arrays as lists, numbers that are not finite as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
