"""Write files whole or not at all, and read and write JSON.

A file is written under a temporary name, forced to the disk and renamed, so that a reader finds the old text or the new
one, never half of one. Lines of metrics are appended one by one.
"""

import errno
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from apformer.errors import CHECKPOINT, DISK, UserError

AnyPath = str | os.PathLike[str]
Json = dict[str, Any]  # an object of JSON
FilePath = Annotated[str, "a path"]  # a flag that is a path: `flags` expands its ~
AGAIN = "restore the file, or train anew"  # the remedy for a file of a run
DEEPEST = 100  # dicts and lists of JSON within each other


def preflight(directory: AnyPath, needs: float) -> None:
    """Raise UserError(DISK) unless `directory` can be written and its disk has `needs` bytes free."""
    with disk_errors(directory):
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"apformer")  # a full disk is found as the file is closed
        free = shutil.disk_usage(directory).free
    if free < needs:
        raise UserError(
            f"the disk of {directory} has {free / 1e6:,.0f} MB free and this takes about {math.ceil(needs / 1e6):,} MB"
            ": free some space, or give another --run_dir",
            DISK,
        )


def require_empty(folder: Path) -> None:
    """Make a folder unless it exists. Raises UserError: USAGE if it holds files, DISK if it cannot be made.

    Hidden files do not count.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(entry.name[0] != "." for entry in folder.iterdir()):
            raise UserError(f"{folder} holds files, and none is overwritten: give a new or an empty folder")


def append_record(path: AnyPath, record: Json) -> None:
    """Append a dict to a JSON-lines file, as one whole line. Raises UserError(DISK)."""
    line = json.dumps(plain(record), allow_nan=False) + "\n"
    with disk_errors(path), open(path, "a", encoding="utf-8") as file:
        file.write(line)


def truncate_after(path: Path, step: float) -> None:
    """Remove the records of later steps from a JSON-lines file, and lines that are no record of a step."""
    if not path.exists():
        return
    remaining = b""
    for line in read_bytes(path).splitlines():
        with suppress(ValueError):
            if read_record(line)["step"] <= step:
                remaining += line + b"\n"
    write_bytes(path, remaining)


def read_record(line: bytes) -> Json:
    """Return the dict of a line of JSON with the key "step". Raises ValueError if the line is no such record.

    The other values are finite numbers or lists of them; null stands for a number that was not finite.
    """
    record = parse_json(line)
    if not has(record, {"step": int}) or not all(map(_is_numeric, record.values())):
        raise ValueError("a line is not the record of a step")
    return record


def has(value: Any, kinds: dict[str, Any]) -> bool:
    """Return whether a value of JSON is a dict with the keys of `kinds`, each of exactly the type named there."""
    return isinstance(value, dict) and all(type(value.get(key)) is kind for key, kind in kinds.items())


def _is_numeric(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(
        v is None or (type(v) is float and abs(v) < 1e300) or (type(v) is int and abs(v) < 2**63) for v in values
    )


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON, in a str or in bytes. Raises ValueError if it is not valid, or nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [item for outer in level for item in _inside(outer)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def write_json(path: AnyPath, value: Any) -> None:
    """Write `value` as JSON, whole or not at all; numbers that are not finite become null. Raises UserError(DISK)."""
    write_text(path, json.dumps(plain(value), indent=1, allow_nan=False) + "\n")


def read_json(path: AnyPath, remedy: str = AGAIN) -> Any:
    """Return the value in a JSON file. Raises UserError(CHECKPOINT) naming the file if it is missing or broken."""
    try:
        return parse_json(read_bytes(path, remedy))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}): {remedy}", CHECKPOINT) from None


def read_text(path: AnyPath, remedy: str = AGAIN, exit_code: int = CHECKPOINT) -> str:
    """Return the text of a file, without a byte order mark. Raises UserError as `read_bytes`, or if it is not UTF-8."""
    try:
        return read_bytes(path, remedy, exit_code).decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        fault = f"{path} is not UTF-8 at byte offset {error.start}"
        raise UserError(f"{fault}: convert it, or {remedy}", exit_code) from None


def read_bytes(path: AnyPath, remedy: str = AGAIN, exit_code: int = CHECKPOINT) -> bytes:
    """Return the bytes of a file. Those of a pipe, which can be read only once, are cached.

    Raises:
        UserError: If it cannot be read. The sentence names the file and the remedy.
    """
    try:
        return Path(path).read_bytes() if os.path.isfile(path) else _read_pipe(Path(path))
    except (OSError, ValueError) as error:  # a ValueError for a path that no file can have
        reason = getattr(error, "strerror", error)
        raise UserError(f"{path} cannot be read ({reason}): {remedy}", exit_code) from None


@cache
def _read_pipe(path: Path) -> bytes:
    if path.is_char_device():  # /dev/zero has no end
        raise ValueError("it is a device")
    return path.read_bytes()


def sha256(path: AnyPath) -> str:
    """Return the sha256 of the bytes of a file, in hexadecimal digits. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: AnyPath, text: str) -> None:
    """Write `text` to a file, whole or not at all, and on the disk when this returns. Raises UserError(DISK)."""
    write_bytes(path, text.encode())


def write_bytes(path: AnyPath, data: bytes) -> None:
    """Write bytes to a file, whole or not at all, and on the disk when this returns. Raises UserError(DISK)."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path for the body to write, then force it to the disk and rename it. Raises UserError(DISK)."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        try:
            yield temporary
            fsync(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        fsync(path.parent)


def fsync(path: AnyPath) -> None:
    """Force a file or a directory to the disk, where its file system can do that."""
    try:
        force(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise


def force(path: AnyPath) -> None:
    """Force a file or a directory to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: AnyPath, verb: str = "write") -> Iterator[None]:
    """Turn an OSError of the body into UserError(DISK), one sentence that names `path` and the remedy."""
    try:
        yield
    except OSError as error:
        reason, remedy = error.strerror or error, "fix that, or use another directory"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason, remedy = "the disk is full", "free some space, then resume the run or repeat the command"
        raise UserError(f"cannot {verb} {path} ({reason}): {remedy}", DISK) from error


def plain(value: Any) -> Any:
    """Return `value` in JSON's own types: arrays as lists, numbers that are not finite as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
