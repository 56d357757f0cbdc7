"""Several processes as one run, on several machines or on one: all of them train, and process 0 alone writes the run.

    process 0    apformer train ... --coordinator HOST:PORT --processes 2 --process 0      on the machine HOST
    process 1    the same, with --process 1

First all processes meet at HOST:PORT, where one that does not come, or has another version or other flags, is named.
Then `jax.distributed` connects them (https://docs.jax.dev/en/latest/multi_process.html), and the mesh of `devices` has
the devices of all.

The connections of the meeting stay open, and every second a byte goes over each of them. Where one ends, or is silent
for SILENCE seconds, a process is lost. Then all others end too, with a sentence: what they compute together cannot go
on, and would wait for ever.
"""

import json
import os
import select
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib.metadata import version

from apformer import __version__, files
from apformer.errors import LOST, USAGE, UserError
from apformer.machine import compilation, signals

VARIABLES = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "processes": "JAX_NUM_PROCESSES",
    "process": "JAX_PROCESS_ID",
}
PATIENCE = 120  # seconds until all processes have come
SILENCE = 15  # seconds after which a process is lost
GRACE = 5  # seconds to finish a save once a process is lost
LIMIT = 2**16  # bytes of a line at the meeting
ALIVE, GOODBYE = b".", b"!"
FOREIGN = (OSError, ValueError, LookupError, TypeError)  # what comes of a message of a stranger
GONE = "another process has ended or does not answer: see what it says; `apformer resume` goes on with any number"

_index = 0  # of this process
_peers = {}  # {process: connection}: process 0 has one to each other, which has one to process 0
_scratch = []  # folders to remove at the end
_lost = threading.Event()  # whether one of them is


def first():
    """Whether this process writes the run: process 0, or the only one."""
    return _index == 0


def together(given):
    """(HOST:PORT, how many, which) by flags, or by the environment; None where neither names a coordinator.

    given: {flag: value or None}. Raises UserError (exit USAGE) that names the flag which is missing or does not fit.
    """
    found = {flag: given[flag] or os.environ.get(variable) for flag, variable in VARIABLES.items()}
    if found["coordinator"] is None and not any(given.values()):
        return None
    for flag, value in found.items():
        if value is None:
            raise UserError(f"--{flag} is missing: give --coordinator HOST:PORT, --processes and --process", USAGE)
    (host, _, port), count, index = found["coordinator"].rpartition(":"), found["processes"], found["process"]
    if not host or not port.isdecimal() or not 1 <= int(port) < 2**16:
        raise UserError(f"--coordinator {found['coordinator']} is no address: give HOST:PORT", USAGE)
    if not count.isdecimal() or not 1 <= int(count) <= 4096:
        raise UserError(f"--processes {count} is out of range: give 1 to 4096", USAGE)
    if not index.isdecimal() or int(index) >= int(count):
        raise UserError(f"--process {index} is out of range: give 0 to {int(count) - 1}", USAGE)
    return (host, int(port)), int(count), int(index)


@contextmanager
def joined(address, count, index, words):
    """Within, this process is one of `count`; all but the first print nothing but what goes wrong.

    words: the command, the same for all. Raises UserError: USAGE if processes differ; LOST if one does not come, or
    ends before the others.
    """
    global _index
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before JAX is imported: no warnings, but errors
    import jax

    from apformer.machine import agreement

    _peers.update(meet(address, count, index, words))
    _index = index
    threading.Thread(target=_watch, daemon=True).start()
    jax.config.update("jax_enable_recoverability", True)  # which leaves the end of a process to this file
    place = f"{address[0]}:{address[1]}"
    jax.distributed.initialize(place, count, index, coordinator_bind_address=place)
    agreement.most(0)  # connects all devices now, see devices.connect
    try:
        with ExitStack() as quiet:
            if index:
                nowhere = quiet.enter_context(open(os.devnull, "w"))
                quiet.enter_context(redirect_stdout(nowhere))
                quiet.enter_context(redirect_stderr(nowhere))
            yield
    except UserError:
        raise
    except Exception as error:
        # What is computed together fails where a process is lost, a moment before the watch knows.
        if "Gloo" in str(error) or _lost.wait(timeout=3):
            raise UserError(GONE, LOST) from None
        raise


def leave(exit_code):
    """End this process, if it is one of several. It waits for no other."""
    if not _peers:
        return
    for folder in _scratch:
        shutil.rmtree(folder, ignore_errors=True)
    if exit_code in (0, *(128 + number for number in signals.NUMBERS)):
        for peer in _peers.values():
            with suppress(OSError):
                peer.sendall(GOODBYE)
    end(exit_code)


def end(exit_code):
    """End this process now.

    An ordinary exit takes a third of a second more. And in it JAX waits for the other processes, or aborts where the
    coordinator is gone.
    """
    compilation.seal()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)


def scratch(run=None):
    """A new folder for what a process but the first would write, with the files of `run`; removed as it leaves."""
    folder = tempfile.mkdtemp(prefix="apformer-")
    _scratch.append(folder)
    if run is not None:
        shutil.copytree(run, folder, dirs_exist_ok=True)
    return folder


def meet(address, count, index, words):
    """{process: connection} once all have come to the address. Raises UserError, in all of them, as `joined`."""
    versions = ", ".join(["apformer " + __version__, *(f"{name} {version(name)}" for name in ("jax", "jaxlib"))])
    said = {"process": index, "--processes": count, "versions": versions, "the command": shlex.join(words)}
    if index == 0:
        return _receive_all(address, said)
    peer = _call(address)
    try:
        _say(peer, said)
        fault = _hear(peer, 2 * PATIENCE)
    except (OSError, ValueError):
        fault = "process 0 has ended: see what it says", LOST
    if fault is not None:
        peer.close()
        raise UserError(*fault)
    return {0: peer}


def _call(address):
    """A connection to process 0, which may start later than this process."""
    place, deadline = f"--coordinator {address[0]}:{address[1]}", time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(address, timeout=PATIENCE)
        except socket.gaierror as error:
            raise UserError(f"{place} is unknown ({_why(error)}): give the machine of process 0", USAGE) from None
        except OSError as error:
            if time.monotonic() > deadline:
                silent = f"{place} does not answer for {PATIENCE} s ({_why(error)})"
                raise UserError(f"{silent}: start process 0 on that machine, or open the port", LOST) from None
            time.sleep(0.2)


def _receive_all(address, ours):
    """{process: connection}, once all have come and said the same. All are told the fault there is."""
    try:
        server = socket.create_server(address)
    except OSError as error:
        unfit = f"--coordinator {address[0]}:{address[1]} cannot be opened here ({_why(error)})"
        raise UserError(f"{unfit}: process 0 must run on that machine, and the port be free", USAGE) from None
    callers, fault, deadline = [], None, time.monotonic() + PATIENCE
    with server:
        while fault is None and len(callers) < ours["--processes"] - 1:
            server.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                peer, _ = server.accept()
            except TimeoutError:
                missing = min({*range(1, ours["--processes"])} - {index for index, _ in callers})
                fault = f"process {missing} has not come within {PATIENCE} s: start it", LOST
                break
            try:
                theirs = _hear(peer, 10)
                fault = _difference(ours, theirs, [index for index, _ in callers])
                callers.append((theirs["process"], peer))
            except FOREIGN:
                peer.close()  # none of ours
    for _, peer in callers:
        with suppress(OSError):
            _say(peer, fault)
    if fault is not None:
        for _, peer in callers:
            peer.close()
        raise UserError(*fault)
    return dict(callers)


def _difference(ours, theirs, others):
    """The fault of a process that says other than process 0, or has the number of another; None if there is none."""
    process = theirs["process"]
    if type(process) is not int:
        raise TypeError("the number of a process is none")
    for name in ("versions", "--processes", "the command"):
        if ours[name] != theirs[name]:
            return f"process {process} has {name} {theirs[name]}, process 0 {ours[name]}: give all the same", USAGE
    if process in (0, *others):
        return f"two processes have --process {process}: number them 0 to {ours['--processes'] - 1}", USAGE


def _why(error):
    return (error.strerror or str(error)).partition(" (")[0]


def _say(peer, message):
    peer.sendall(json.dumps(message).encode() + b"\n")


def _hear(peer, seconds):
    """What one line of a connection says. Raises OSError or ValueError if there is none so soon."""
    peer.settimeout(seconds)
    with peer.makefile("rb", buffering=0) as lines:  # which reads nothing of what follows the line
        return files.parse_json(lines.readline(LIMIT))


def _watch():
    """Tell the others every second that this process lives, and end it a while after one of them is lost."""
    heard = dict.fromkeys(_peers, time.monotonic())
    while heard:
        time.sleep(1)
        ready, _, _ = select.select([_peers[index] for index in heard], [], [], 0)
        for index in [*heard]:
            try:
                _peers[index].sendall(ALIVE)
                said = _peers[index].recv(LIMIT) if _peers[index] in ready else None
            except OSError:
                said = b""
            if said and GOODBYE in said:
                del heard[index]
            elif said:
                heard[index] = time.monotonic()
            elif said == b"" or time.monotonic() - heard[index] > SILENCE:
                _lost.set()
                time.sleep(GRACE)  # the main thread ends by itself, unless it waits for what is lost
                print(f"apformer: {GONE}", file=sys.__stderr__, flush=True)
                leave(LOST)
