"""Compiled programs are kept on the disk, so that a command compiles nothing that a command before it compiled.

JAX's persistent compilation cache does the work (https://docs.jax.dev/en/latest/persistent_compilation_cache.html). It
trusts what lies in its folder. This file makes that safe:

- a folder is for one kind of processor and one version of JAX, since the program of another may crash;
- a program has a seal, the sha256 of its file, written when the process that compiled it ends. A program that differs
  from its seal is removed before JAX reads it. One without a seal, of a process that was killed, is compressed with a
  checksum of its own, and is removed after a day;
- the oldest programs are removed when those of all kinds take more than LIMIT bytes. What else lies in a folder that
  the user named is not touched.

So a damaged or foreign program costs a compilation.
"""

import atexit
import hashlib
import os
import platform
import sys
import time
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

VARIABLE = "APFORMER_COMPILATION_CACHE"
FORBIDDEN = "none"
LIMIT = 2**30  # bytes
DAY = 86_400  # seconds

_kept = []  # [the folder, the programs that were there when this process began]


def keep(place=None):
    """Let JAX keep its compiled programs; to be called before the first is compiled. Returns their folder, or None.

    place: a folder, or "none" to keep no program. The default is the environment variable APFORMER_COMPILATION_CACHE,
    then the cache directory of the user. A folder that JAX was told of already stays. One that cannot be written costs
    a line on standard error, and every compilation.
    """
    import jax

    place = place or os.environ.get(VARIABLE) or usual_place()
    if jax.config.jax_compilation_cache_dir is not None or place == FORBIDDEN:
        return jax.config.jax_compilation_cache_dir
    folder = Path(os.path.expanduser(place)).absolute() / _kind()  # pathlib's raises where there is no such home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (probe := folder / f".{os.getpid()}").touch()
        probe.unlink()
        _check(folder)
        _prune(folder.parent)
        known = _programs(folder)
    except OSError as error:
        remedy = f"set {VARIABLE} to another folder, or to {FORBIDDEN}"
        print(f"cannot keep compiled programs in {folder} ({error.strerror}): {remedy}", file=sys.stderr)
        return None
    # Neither costs more than a compilation: a program that cannot be read, and one that does not fit on the disk.
    warnings.filterwarnings("ignore", message="Error (reading|writing) (from )?persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    _kept[:] = folder, known
    atexit.register(seal)
    return str(folder)


def seal():
    """Seal the programs that were not there when the process began; called as it ends."""
    if _kept:
        folder, known = _kept
        with suppress(OSError):
            for program in _programs(folder) - known:
                _seal_of(program).write_text(_digest(program))


def usual_place():
    """The folder of apformer in the user's cache directory."""
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "apformer"


def _kind():
    """A name for the processor and the versions that programs are compiled by."""
    processor = platform.processor() + platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    versions = [f"{name}-{version(name)}" for name in ("jax", "jaxlib")]
    return "-".join([*versions, hashlib.sha256(processor.encode()).hexdigest()[:12]])


def _programs(folder):
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sha256"}


def _seal_of(program):
    return program.with_name(program.name + ".sha256")


def _digest(program):
    return hashlib.sha256(program.read_bytes()).hexdigest()


def _check(folder):
    """Remove the programs of a folder that differ from their seal, and old ones that have none."""
    for program in _programs(folder):
        with suppress(FileNotFoundError):  # another process removed it
            seal = _seal_of(program)
            stale = not seal.exists() and time.time() - program.stat().st_mtime > DAY
            if stale or (seal.exists() and seal.read_bytes() != _digest(program).encode()):
                _remove(program)


def _prune(place):
    """Remove the oldest programs until those of all kinds take less than LIMIT bytes."""
    facts = []
    for program in set().union(*map(_programs, place.glob("jax-*-jaxlib-*"))):  # the folders that _kind names
        with suppress(FileNotFoundError):
            facts.append((program.stat().st_mtime, program.stat().st_size, program))
    total = sum(size for _, size, _ in facts)
    for _, size, program in sorted(facts):
        if total <= LIMIT:
            break
        _remove(program)
        total -= size


def _remove(program):
    program.unlink(missing_ok=True)
    _seal_of(program).unlink(missing_ok=True)
