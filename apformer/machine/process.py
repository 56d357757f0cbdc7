"""The process of a command: its faults in one sentence, its stop signals, and its compiled programs on the disk.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) end a command with 128 + their number, and one sentence: its
files are written whole or not at all, so nothing that was saved is lost. Work that can be kept is `deferred`: the first
signal waits until it is saved, the second ends the command at once. A thread answers the signals, so that the answer
does not wait for the device or the compiler, in which the main thread may be for minutes. A signal that is ignored when
the command begins, as SIGHUP under nohup, stays ignored.

JAX keeps compiled programs on the disk (https://docs.jax.dev/en/latest/persistent_compilation_cache.html), and trusts
what it finds there. Here a folder is for one kind of processor and one version of JAX, since the program of another may
crash. A program has a seal, the sha256 of its file, written when the process that compiled it ends; one that differs
from its seal is removed before JAX reads it, one without a seal after a day. The oldest programs go when those of all
kinds take more than LIMIT bytes. What else lies in a folder that the user named is not touched.
"""

import atexit
import hashlib
import os
import platform
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from apformer.errors import DISK, USAGE, UserError, tell
from apformer.machine import refusals, streams

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GOES_ON = "nothing that was saved is lost: `apformer resume` goes on with a run; run other commands again"
CACHE = "APFORMER_COMPILATION_CACHE"
FORBIDDEN = "none"
LIMIT = 2**30  # bytes
DAY = 86_400  # seconds

_deferred = []  # a list for each `deferred` that is entered
_lock = threading.Lock()  # of this list
_answered = threading.Semaphore(0)
_heard = []  # the program whose signals are heard
_kept = []  # [the folder of compiled programs, those that were there when this process began]


def guard(program: str, call: Callable[[], None]) -> int:
    """Return the exit code of a process that calls call(). What is not the user's to mend keeps its traceback."""
    try:
        exit_code = 0
        streams.prepare()
        with heard(program):
            try:
                call()
            except SystemExit as stop:
                exit_code = int(stop.code or 0)
            sys.stdout.flush()
        return exit_code
    except UserError as error:
        exit_code = _say(program, error, error.exit_code)
    except BrokenPipeError:
        exit_code = 0  # Who reads our output has had enough, as in `apformer predict ... | head`.
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sentence = f"{place}{error.strerror or error}; see `apformer doctor` for disk and permissions"
        exit_code = _say(program, sentence, DISK)
    except KeyboardInterrupt:
        exit_code = _say(program, "stopped", 130)
    except Exception as error:
        sentence = refusals.of_machine(error)
        if sentence is None:
            raise
        exit_code = _say(program, sentence, USAGE)
    try:
        sys.stdout.flush()
    except OSError:
        # This has been said, and the interpreter would say it again as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code


def end(exit_code: int) -> None:
    """End this process now: an ordinary exit takes a third of a second more, or waits for processes that are lost."""
    seal()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)


def _say(program: str, sentence: object, exit_code: int) -> int:
    with suppress(OSError):
        tell(f"{program}: {sentence}")
    return exit_code


@contextmanager
def heard(program: str) -> Iterator[None]:
    """Answer stop signals: end the process with a sentence of `program`; where work is deferred, at the second.

    Does nothing outside the main thread, and where they are heard already.
    """
    if _heard or threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = _take()
    wakes = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    _heard[:] = program, sys.stderr  # while flags are read, sys.stderr is another
    listener = threading.Thread(target=_listen, args=(ours,), daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in before.items():
            signal.signal(number, handler)
        theirs.close()
        listener.join(1)
        ours.close()
        _heard.clear()


@contextmanager
def deferred() -> Iterator[list[int]]:
    """Yield a list that receives the number of the first stop signal, so that the work in hand is saved before.

    Whoever defers ends the process with 128 + that number; if it came too late for that, the end of this context does.
    A second signal ends the process at once.
    """
    received = []
    with nullcontext() if _heard else heard("apformer"):
        if _heard and threading.current_thread() is threading.main_thread():
            _take()  # again, since jax.distributed takes SIGTERM for itself
        _deferred.append(received)
        try:
            yield received
        finally:
            with _lock:
                _deferred[:] = [other for other in _deferred if other is not received]  # equal lists are others
        if received:
            _told(f"{_heard[0]}: stopped by {signal.Signals(received[0]).name}; {GOES_ON}")
            sys.exit(128 + received[0])


def _take() -> dict[int, Any]:
    """Take the stop signals that are not ignored; return the handlers before."""
    taken = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, _wait) for number in taken}


def _wait(*_: object) -> None:
    """Wait until a signal is answered: Python's part in it, once the main thread is back in Python."""
    _answered.acquire(timeout=1)


def _listen(connection: socket.socket) -> None:
    """Answer the signals whose numbers come over a connection, until it is closed."""
    with suppress(OSError):
        while numbers := connection.recv(64):
            for number in numbers:
                if number in STOPS:
                    with _lock:
                        _answer(number)
                    _answered.release()


def _answer(number: int) -> None:
    if not _deferred or any(_deferred):
        again = "at once" if _deferred else f"by {signal.Signals(number).name}"
        _told(f"{_heard[0]}: stopped {again}; {GOES_ON}")
        os._exit(128 + number)
    for received in _deferred:
        received.append(number)
    _told("stopping after the work in hand is saved; Ctrl-C or the signal again stops at once, without saving")


def _told(sentence: str) -> None:
    """Print a line to standard error, unless that is gone, or a pipe that nobody reads."""
    try:
        place = _heard[1].fileno()
    except (OSError, ValueError, AttributeError):
        with suppress(OSError, ValueError):
            print(sentence, file=_heard[1])  # a notebook's, which is no file
        return
    with suppress(OSError):
        if select.select([], [place], [], 0)[1]:
            os.write(place, f"{sentence}\n".encode(errors="backslashreplace"))


def keep_programs(place: str | None = None) -> str | None:
    """Let JAX keep its compiled programs, and return their folder; to be called before the first is compiled.

    Args:
        place: A folder, or "none" to keep no program. The default is that of the call before, the environment variable
            APFORMER_COMPILATION_CACHE, the cache directory of the user. A folder that JAX was told of already stays.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    usual = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "apformer")
    place = place or os.environ.get(CACHE) or usual
    os.environ[CACHE] = place  # for what is loaded later
    config: Any = jax.config  # which sets its names as it is made
    told = config.jax_compilation_cache_dir
    if told is not None or place == FORBIDDEN:
        return told
    folder = Path(os.path.expanduser(place)).absolute() / _kind()  # pathlib's raises where there is no such home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (probe := folder / f".{os.getpid()}").touch()
        probe.unlink()
        _tidy(folder)
        _kept[:] = folder, {*_programs(folder)}
    except OSError as error:
        os.environ[CACHE] = FORBIDDEN  # said once
        remedy = f"give another folder, or {FORBIDDEN}, with --compilation_cache or {CACHE}"
        tell(f"cannot keep compiled programs in {folder} ({error.strerror}): {remedy}")
        return None
    # Neither costs more than a compilation: a program that cannot be read, and one that does not fit on the disk.
    warnings.filterwarnings("ignore", message="Error (reading|writing) (from )?persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    compilation_cache.reset_cache()  # which JAX did without if it has compiled something
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    atexit.register(seal)
    return str(folder)


def seal() -> None:
    """Seal the programs that were not there when the process began; called as it ends."""
    with suppress(OSError, ValueError):
        folder, known = _kept
        for program in {*_programs(folder)} - known:
            _seal_of(program).write_text(_digest(program))


def _kind() -> str:
    """Return a name for the processor and the versions that programs are compiled by."""
    processor = platform.processor() + platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    versions = [f"{name}-{version(name)}" for name in ("jax", "jaxlib")]
    return "-".join([*versions, hashlib.sha256(processor.encode()).hexdigest()[:12]])


def _programs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sha256"]


def _seal_of(program: Path) -> Path:
    return program.with_name(program.name + ".sha256")


def _digest(program: Path) -> str:
    return hashlib.sha256(program.read_bytes()).hexdigest()


def _tidy(folder: Path) -> None:
    """Remove the programs of a folder that are damaged or unsealed for a day, and the oldest of all kinds."""
    found, total = [], 0
    for kind in folder.parent.glob("jax-*-jaxlib-*"):  # the folders that _kind names
        for program in _programs(kind):
            with suppress(FileNotFoundError):  # another process removed it
                found.append((program.stat().st_mtime, program))
    for changed, program in sorted(found, reverse=True):
        with suppress(FileNotFoundError):
            total += program.stat().st_size
            seal, stale = _seal_of(program), time.time() - changed > DAY
            ours = program.is_relative_to(folder)
            damaged = ours and (seal.read_bytes() != _digest(program).encode() if seal.exists() else stale)
            if total > LIMIT or damaged:
                program.unlink()
                seal.unlink(missing_ok=True)
