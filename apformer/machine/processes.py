"""Train one run in several processes, on one machine or several, on the devices of all.

Process 0 alone writes the run:

    process 0    apformer train ... --coordinator HOST:PORT --processes 2 --process 0      on the machine HOST
    process 1    the same, with --process 1

`jax.distributed` connects them (https://docs.jax.dev/en/latest/multi_process.html). A computation of all
would wait for a lost process for ever. So the others end with a sentence, once JAX has heard nothing of it for SILENCE
seconds. JAX itself reports the end of process 0, and two processes with one number.
"""

import errno
import hashlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from apformer import __version__
from apformer.errors import DATA, LOST, USAGE, UserError, tell
from apformer.machine import process

PATIENCE = 120  # seconds for all processes to start
SILENCE = 30  # seconds after which a process is lost
REMEDY = "give --coordinator HOST:PORT, the machine of process 0, --processes N, and --process 0 to N - 1"
WATCHES = jax.__version_info__ >= (0, 8, 1)  # versions whose `live_devices` is a context manager
GONE = "another process has ended or does not answer: see its message; `apformer resume` takes any number of them"
_leaving = ExitStack()  # contexts to close when this process leaves the others
_together = threading.Event()  # set while this process computes with others


@contextmanager
def joined(coordinator: str | None, processes: str | None, index: str | None, words: Sequence[str]) -> Iterator[None]:
    """Make this process one of several. All but the first print only errors.

    Args:
        coordinator: HOST:PORT of process 0; "auto" to let JAX ask Slurm, Open MPI or the environment of a TPU.
        processes: Number of processes; None with "auto".
        index: Number of this process, from 0; None with "auto".
        words: Words of the command, which must be the same in all processes.

    Raises:
        UserError: USAGE for wrong arguments, or if processes differ; LOST if one ends before the others.
    """
    if not WATCHES:
        raise UserError("several processes need jax 0.8.1 or newer: `pip install -U jax`")
    address = None if coordinator == "auto" else coordinator
    late = threading.Timer(PATIENCE, _give_up, [coordinator])  # since JAX would abort this process instead
    late.daemon, bind = True, None
    # The proxies of the web are not for `jax.distributed`.
    proxies = {name: os.environ.pop(name) for name in [*os.environ] if name.lower().endswith("_proxy")}
    try:
        count, number = (None if text is None else int(text) for text in (processes, index))
        if address is not None:
            host, _, port = address.rpartition(":")
            host = host.strip("[]")
            family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
            # A machine's name may be a loopback address in its own hosts file, and another address elsewhere.
            bind = address if _is_loopback(host) else None
            if number == 0:
                socket.create_server((host, int(port)) if bind else ("", int(port)), family=family).close()
            _take_number(address, index)
            _be_reached(host, int(port))
        late.start()
        jax.config.update("jax_enable_recoverability", True)  # so that JAX does not abort it if another is lost
        jax.distributed.initialize(
            address,
            count,
            number,
            coordinator_bind_address=bind,
            initialization_timeout=10 * PATIENCE,
            heartbeat_timeout_seconds=SILENCE,
        )
    except (ImportError, OSError, OverflowError, RuntimeError, ValueError) as error:
        message = str(error).replace("invalid literal for int() with base 10:", "no whole number:")
        raise UserError(f"this process cannot join others at {coordinator} ({message}): {REMEDY}") from None
    finally:
        late.cancel()
        os.environ.update(proxies)
    if len(jax.devices()) != jax.process_count() * jax.local_device_count():
        raise UserError("processes have different numbers of devices: give all the same")
    _together.set()
    threading.Thread(target=_watch, daemon=True).start()
    try:
        with _leaving:
            versions = [__version__, *map(version, ("jax", "jaxlib"))]
            agree("versions, --processes or flags", [versions, processes, [*words]], USAGE)
            if jax.process_index():
                nowhere = _leaving.enter_context(open(os.devnull, "w"))
                _leaving.enter_context(redirect_stdout(nowhere))
                _leaving.enter_context(redirect_stderr(nowhere))
            yield
    except (RuntimeError, ValueError) as error:
        if "Gloo" in str(error):  # a computation of all fails if a process is lost
            raise UserError(GONE, LOST) from None
        raise


def _be_reached(host: str, port: int) -> None:
    """Let Gloo, which connects CPUs, listen at an address that other machines can reach.

    By default it listens at the address of this machine's name, which in Debian's hosts file is 127.0.1.1 and may be
    missing. Here it is the address from which this machine calls the coordinator, or the internet. JAX has no flag for
    it.
    """
    try:
        own_address = socket.gethostbyname(socket.gethostname())
    except OSError:
        own_address = ""
    if own_address and not _is_loopback(own_address):
        return
    for called in (host, "192.0.2.1"):  # nothing is sent there
        with suppress(ImportError, AttributeError, OSError):
            from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

            family, kind, protocol, _, place = socket.getaddrinfo(called, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as caller:
                caller.connect(place)
                address = caller.getsockname()[0]
            if not own_address or not _is_loopback(address):
                _jax.make_gloo_tcp_collectives = partial(_jax.make_gloo_tcp_collectives, hostname=address)
                return


def begin() -> None:
    """Begin to compute together, once all processes are here, however long that takes."""
    _together.set()
    most(0)


def part() -> None:
    """Stop computing together: until `begin`, no process is reported as lost."""
    _together.clear()


def most(number: int) -> int:
    """Return the largest `number` of all processes."""
    return int(multihost_utils.process_allgather(np.int32(number)).max())


def of_first(value: Any) -> Any:
    """Return the `value` of process 0, which JSON must be able to hold."""
    text = json.dumps(value)
    text = text.ljust(most(len(text)))  # arrays of all processes have one shape
    return json.loads(bytes(multihost_utils.broadcast_one_to_all(np.frombuffer(text.encode(), np.uint8))))


def agree(name: str, value: Any, exit_code: int = DATA) -> None:
    """Raise UserError for a process whose value differs from that of process 0; of types that JSON has."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    unlike = (digests != digests[0]).any(-1)
    if unlike.any():
        raise UserError(f"process {unlike.argmax()} has other {name} than process 0: give all the same", exit_code)


def scratch(run: Path | None = None) -> Path:
    """Return a temporary folder for the files of a process that is not the first, with a copy of those of `run`."""
    folder = _leaving.enter_context(TemporaryDirectory(prefix="apformer-", ignore_cleanup_errors=True))
    if run is not None:
        shutil.copytree(run, folder, dirs_exist_ok=True)
    return Path(folder)


def _take_number(address: str, index: str | None) -> None:
    """Raise UserError (exit USAGE) if another process here has the same number, for which JAX would abort both."""
    taken = _leaving.enter_context(socket.socket(socket.AF_UNIX))
    try:
        taken.bind(f"\0apformer {address} {index}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fault = f"--process {index} is that of another process on this machine"
            raise UserError(f"{fault}: give each its own, 0 to N - 1") from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _give_up(coordinator: str) -> None:
    remedy = "start all of them, process 0 on that machine, and open the port"
    tell(f"apformer: not all processes came to {coordinator} within {PATIENCE} s: {remedy}")
    process.end(LOST)


def _watch() -> None:
    """End this process if another is lost while they compute together."""
    while True:
        time.sleep(1)
        try:
            _together.wait()
            with multihost_utils.live_devices(jax.devices()):
                pass
        except Exception:  # JAX raises other kinds in other versions
            if _together.is_set():
                print(f"apformer: {GONE}", file=sys.__stderr__, flush=True)
                process.end(LOST)
