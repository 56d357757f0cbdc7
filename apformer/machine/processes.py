"""Several processes, on several machines or on one, that train as one run on the devices of all.

They do all else on their own. Process 0 alone writes the run:

    process 0    apformer train ... --coordinator HOST:PORT --processes 2 --process 0      on the machine HOST
    process 1    the same, with --process 1

`jax.distributed` connects them (https://docs.jax.dev/en/latest/multi_process.html). What they compute together waits
for all, so that a lost process would halt the others for ever: these end with a sentence, once JAX has heard nothing of
it for SILENCE seconds. Only of the end of process 0, and of two processes with one number, JAX itself tells the others.
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
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from apformer import __version__
from apformer.errors import DATA, LOST, USAGE, UserError, tell
from apformer.machine import process

PATIENCE = 120  # seconds until all processes have come
SILENCE = 30  # seconds after which a process is lost
REMEDY = "give --coordinator HOST:PORT, the machine of process 0, --processes N, and --process 0 to N - 1"
WATCHES = jax.__version_info__ >= (0, 8, 1)  # whose `live_devices` is a context manager
GONE = "another process has ended or does not answer: see what it says; `apformer resume` goes on with any number"
_leaving = ExitStack()  # what is undone when this process leaves the others
_together = threading.Event()  # set while this process computes with others


@contextmanager
def joined(coordinator: str | None, processes: str | None, index: str | None, words: Sequence[str]) -> Iterator[None]:
    """Make this process one of several, of which all but the first print nothing but what goes wrong.

    Args:
        coordinator: HOST:PORT of process 0; "auto" for what JAX finds out from Slurm, Open MPI or a TPU's environment.
        processes: Number of processes; None as above.
        index: Number of this process, from 0; None as above.
        words: The command, the same for all.

    Raises:
        UserError: USAGE for what does not fit, or if processes differ; LOST if one ends before the others.
    """
    if not WATCHES:
        raise UserError("several processes need jax 0.8.1 or newer: `pip install -U jax`")
    address = None if coordinator == "auto" else coordinator
    late = threading.Timer(PATIENCE, _give_up, [coordinator])  # since JAX would abort this process instead
    late.daemon, bind = True, None
    proxies = {name: os.environ.pop(name) for name in [*os.environ] if name.lower().endswith("_proxy")}  # of the web
    try:
        count, number = (None if given is None else int(given) for given in (processes, index))
        if address is not None:
            host, _, port = address.rpartition(":")
            host = host.strip("[]")
            family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
            # An own name may be a loopback address in this machine's hosts file, and others may know it by another.
            bind = address if _is_loopback(host) else None
            if number == 0:
                socket.create_server((host, int(port)) if bind else ("", int(port)), family=family).close()
            _take_number(f"{address} {index}")
            _be_reached(host, int(port))
        late.start()
        jax.config.update("jax_enable_recoverability", True)  # nor does JAX abort it where another one is lost
        jax.distributed.initialize(
            address,
            count,
            number,
            coordinator_bind_address=bind,
            initialization_timeout=10 * PATIENCE,
            heartbeat_timeout_seconds=SILENCE,
        )
    except (ImportError, OSError, OverflowError, RuntimeError, ValueError) as error:
        said = str(error).replace("invalid literal for int() with base 10:", "no whole number:")
        raise UserError(f"this process cannot join others at {coordinator} ({said}): {REMEDY}") from None
    finally:
        late.cancel()
        os.environ.update(proxies)
    if len(jax.devices()) != jax.process_count() * jax.local_device_count():
        raise UserError("processes have different numbers of devices: give all as many")
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
        if "Gloo" in str(error):  # what is computed together fails where a process is lost
            raise UserError(GONE, LOST) from None
        raise


def _be_reached(host: str, port: int) -> None:
    """Have what computes together on CPUs, Gloo, listen where others can reach it.

    It listens at the address of this machine's own name: in Debian's hosts file 127.0.1.1, and some have none. Others
    reach the address from which this machine would call the coordinator, or the world. JAX has no flag for that.
    """
    try:
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        own = None
    if own is not None and not _is_loopback(own):
        return
    for called in (host, "192.0.2.1"):  # nothing is sent there
        with suppress(ImportError, AttributeError, OSError):
            from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

            family, kind, protocol, _, place = socket.getaddrinfo(called, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as caller:
                caller.connect(place)
                address = caller.getsockname()[0]
            if own is None or not _is_loopback(address):
                _jax.make_gloo_tcp_collectives = partial(_jax.make_gloo_tcp_collectives, hostname=address)
                return


def begin() -> None:
    """Begin what processes compute together, once all have come, however long that takes."""
    _together.set()
    most(0)


def part() -> None:
    """End what processes compute together: none of them is missed, until `begin`."""
    _together.clear()


def most(number: int) -> int:
    """Return the greatest of the numbers that the processes give."""
    return int(multihost_utils.process_allgather(np.int32(number)).max())


def of_first(value: Any) -> Any:
    """Return the value, of types that JSON has, that process 0 gives."""
    text = json.dumps(value)
    text = text.ljust(most(len(text)))  # arrays of all processes have one shape
    return json.loads(bytes(multihost_utils.broadcast_one_to_all(np.frombuffer(text.encode(), np.uint8))))


def agree(what: str, value: Any, exit_code: int = DATA) -> None:
    """Raise UserError that names a process whose value, of types that JSON has, is not that of process 0."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    unlike = (digests != digests[0]).any(-1)
    if unlike.any():
        raise UserError(f"process {unlike.argmax()} has other {what} than process 0: give all the same", exit_code)


def scratch(run: str | os.PathLike | None = None) -> str:
    """Return a new folder for what a process but the first would write, with the files of `run`, until it leaves."""
    folder = _leaving.enter_context(TemporaryDirectory(prefix="apformer-", ignore_cleanup_errors=True))
    if run is not None:
        shutil.copytree(run, folder, dirs_exist_ok=True)
    return folder


def _take_number(name: str) -> None:
    """Raise UserError (exit USAGE) if another process of this machine has a number, for which JAX would abort both."""
    taken = _leaving.enter_context(socket.socket(socket.AF_UNIX))
    try:
        taken.bind(f"\0apformer {name}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"--process {name.rpartition(' ')[2]} is that of another process on this machine"
                ": give each its own, 0 to N - 1"
            ) from None


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
    """End this process once another is lost, while they compute together."""
    while True:
        time.sleep(1)
        try:
            _together.wait()
            with multihost_utils.live_devices(jax.devices()):
                pass
        except Exception:  # of JAX, whose kinds differ by version
            if _together.is_set():
                print(f"apformer: {GONE}", file=sys.__stderr__, flush=True)
                process.end(LOST)
