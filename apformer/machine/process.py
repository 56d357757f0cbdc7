"""The process of a command: errors in one sentence, stop signals, and the cache of compiled programs.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) end a command with 128 + their number, and one sentence: its
files are written whole or not at all, so nothing that was saved is lost. While stops are `deferred`, the first signal
waits until the work in hand is saved, and the second ends the command at once. A thread answers the signals, since the
main thread may be in the device or the compiler for minutes. A signal that is ignored when the command begins, as
SIGHUP under nohup, stays ignored.

JAX keeps compiled programs on the disk (https://docs.jax.dev/en/latest/persistent_compilation_cache.html), and trusts
what it finds there. Here each kind of processor and version of JAX has its own folder, since the program of another may
crash. A program has a seal, the sha256 of its file, written when the process that compiled it ends. A program that
differs from its seal is removed before JAX reads it, one without a seal after a day. The oldest programs are removed
when the folders together hold more than LIMIT bytes. Other files in a folder that the user named are not touched.
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
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from apformer.errors import DISK, USAGE, UserError, tell
from apformer.files import sha256
from apformer.machine import refusals, streams

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GOES_ON = "nothing that was saved is lost: `apformer resume` continues a run; run other commands again"
CACHE = "APFORMER_COMPILATION_CACHE"
FORBIDDEN = "none"
LIMIT = 2**30  # bytes
DAY = 86_400  # seconds

_deferred = []  # [the list of signals] while `deferred` is entered
_lock = threading.Lock()  # of _deferred
_answered = threading.Semaphore(0)
_heard = []  # [program, standard error] while `heard` is entered
_programs_before = []  # [folder of compiled programs, the programs there when this process began]


def guard(program: str, call: Callable[[], None]) -> int:
    """Call call(), print an error of the user or machine as one sentence, and return the exit code of the process."""
    sentence, exit_code = None, 0
    try:
        streams.prepare()
        with heard(program):
            try:
                call()
            except SystemExit as stop:
                if isinstance(stop.code, str):
                    raise UserError(stop.code) from None
                exit_code = int(stop.code or 0)
            sys.stdout.flush()
    except UserError as error:
        sentence, exit_code = error, error.exit_code
    except BrokenPipeError:
        exit_code = 0  # The reader of our output has closed it, as in `apformer predict ... | head`.
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sentence = f"{place}{error.strerror or error}; see `apformer doctor` for disk and permissions"
        exit_code = DISK
    except KeyboardInterrupt:
        sentence, exit_code = "stopped", 130
    except Exception as error:
        sentence, exit_code = refusals.explain(error), USAGE
        if sentence is None:
            raise
    if sentence:
        with suppress(OSError):
            tell(f"{program}: {sentence}")
    try:
        sys.stdout.flush()
    except OSError:
        # Already reported; the interpreter would report it again as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code


def end(exit_code: int) -> None:
    """End this process at once: an ordinary exit takes 0.3 s more, or waits for lost processes."""
    seal()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)


@contextmanager
def heard(program: str) -> Iterator[None]:
    """Answer stop signals: the first ends the process with a sentence of `program`; while deferred, the second does.

    Does nothing outside the main thread, or if signals are answered already.
    """
    if _heard or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    handlers = _take()
    wakeup_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    _heard[:] = program, sys.stderr  # while flags are read, sys.stderr is another
    listener = threading.Thread(target=_listen, args=(reader,), daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        writer.close()
        listener.join(1)
        reader.close()
        _heard.clear()


@contextmanager
def deferred() -> Iterator[list[int]]:
    """Yield a list that receives the number of the first stop signal, so that the caller can first save its work.

    The caller, or else the end of this context, exits with 128 + that number. A second signal ends the process at once.
    A context within another yields the list of the outer one.
    """
    if _deferred:
        yield _deferred[0]
        return
    received = []
    with heard("apformer"):
        if threading.current_thread() is threading.main_thread():
            _take()  # again, since jax.distributed takes SIGTERM for itself
        _deferred.append(received)
        try:
            yield received
        finally:
            with _lock:
                _deferred.clear()
        if received:
            _print_now(f"{_heard[0]}: stopped by {signal.Signals(received[0]).name}; {GOES_ON}")
            sys.exit(128 + received[0])


def _take() -> dict[int, Any]:
    """Take over the stop signals that are not ignored; return {signal: earlier handler}."""
    taken = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, _wait) for number in taken}


def _wait(*_: object) -> None:
    """Handle a signal in the main thread: wait until the listening thread has answered it."""
    _answered.acquire(timeout=1)


def _listen(connection: socket.socket) -> None:
    """Answer the signals whose numbers arrive over a connection, until it is closed."""
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
        _print_now(f"{_heard[0]}: stopped {again}; {GOES_ON}")
        os._exit(128 + number)
    _deferred[0].append(number)
    _print_now("stopping after the work in hand is saved; Ctrl-C or the signal again stops at once, without saving")


def _print_now(sentence: str) -> None:
    """Print a line to standard error, unless it is closed or a pipe that nobody reads."""
    try:
        place = _heard[1].fileno()
    except (OSError, ValueError, AttributeError):
        with suppress(OSError, ValueError):
            print(sentence, file=_heard[1])  # that of a notebook is not a file
        return
    with suppress(OSError):
        if select.select([], [place], [], 0)[1]:
            os.write(place, f"{sentence}\n".encode(errors="backslashreplace"))


def keep_programs(place: str | None = None) -> None:
    """Let JAX cache its compiled programs. Call it before the first is compiled.

    Args:
        place: A folder, or "none" to keep no program. The default is the place of the last call, else
            APFORMER_COMPILATION_CACHE, else the cache directory of the user. If JAX already has a folder, it stays.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    default = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "apformer")
    place = place or os.environ.get(CACHE) or default
    os.environ[CACHE] = place  # for later calls
    given = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if given is not None or place == FORBIDDEN:
        return
    folder = Path(os.path.expanduser(place)).absolute() / _kind()  # pathlib's expanduser raises for an unknown home
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (probe := folder / f".{os.getpid()}").touch()
        probe.unlink()
        _tidy(folder)
        _programs_before[:] = folder, {*_programs(folder)}
    except OSError as error:
        os.environ[CACHE] = FORBIDDEN  # so that this is printed once
        remedy = f"give another folder, or {FORBIDDEN}, with --compilation_cache or {CACHE}"
        tell(f"cannot keep compiled programs in {folder} ({error.strerror}): {remedy}")
        return
    # A program that cannot be read or written only costs a compilation.
    warnings.filterwarnings("ignore", message="Error (reading|writing) (from )?persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    compilation_cache.reset_cache()  # JAX has none if it has compiled something already
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    atexit.register(seal)


def seal() -> None:
    """Seal the programs that this process has compiled; called as it ends."""
    with suppress(OSError, ValueError):
        folder, earlier = _programs_before
        for program in {*_programs(folder)} - earlier:
            _seal_of(program).write_text(sha256(program))


def _kind() -> str:
    """Return the name of the folder for this processor and these versions of JAX."""
    processor = platform.processor() + platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    digest = hashlib.sha256(processor.encode()).hexdigest()[:12]
    return f"jax-{version('jax')}-jaxlib-{version('jaxlib')}-{digest}"


def _programs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".sha256"]


def _seal_of(program: Path) -> Path:
    return program.with_name(program.name + ".sha256")


def _tidy(folder: Path) -> None:
    """Remove from a folder the programs that are damaged or unsealed for a day, and from all folders the oldest."""
    programs, total = [], 0
    for kind in folder.parent.glob("jax-*-jaxlib-*"):  # the folders that _kind names
        for program in _programs(kind):
            with suppress(FileNotFoundError):  # another process removed it
                programs.append((program.stat().st_mtime, program))
    for changed, program in sorted(programs, reverse=True):
        with suppress(FileNotFoundError):
            total += program.stat().st_size
            seal, stale = _seal_of(program), time.time() - changed > DAY
            in_folder = program.is_relative_to(folder)
            damaged = in_folder and (seal.read_bytes() != sha256(program).encode() if seal.exists() else stale)
            if total > LIMIT or damaged:
                program.unlink()
                seal.unlink()
