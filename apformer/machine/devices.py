"""All devices that JAX sees as one mesh, ('member', 'data'): members first, then the rows of a batch.

    8 devices, a population of 4:    4 groups of 2; each trains one member, and each device of a group half of the rows
    8 devices, one model:            1 group of 8; each device computes an eighth of the rows

Parameters are whole on every device of a group, and XLA adds up their gradients. With one device nothing here does
anything (https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html).

Several processes, on several machines or on one, train as one run on the devices of all, and do all else on their own.
Process 0 alone writes the run:

    process 0    apformer train ... --coordinator HOST:PORT --processes 2 --process 0      on the machine HOST
    process 1    the same, with --process 1

`jax.distributed` connects them (https://docs.jax.dev/en/latest/multi_process.html). What they compute together waits
for all, so that a lost process would halt the others for ever: these end with a sentence, once JAX has heard nothing of
it for SILENCE seconds. Only of the end of process 0, and of two processes with one number, JAX itself tells the others.
"""

import errno
import hashlib
import json
import math
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from importlib.metadata import version
from ipaddress import ip_address
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from apformer import __version__
from apformer.errors import DATA, LOST, USAGE, UserError
from apformer.machine import process

PATIENCE = 120  # seconds until all processes have come
SILENCE = 30  # seconds after which a process is lost
REMEDY = "give --coordinator HOST:PORT, the machine of process 0, --processes N, and --process 0 to N - 1"
GONE = "another process has ended or does not answer: see what it says; `apformer resume` goes on with any number"

_most = None  # how many devices of a process the user gives us; None for all
_leaving = ExitStack()  # what is undone when this process leaves the others
_together = threading.Event()  # set while this process computes with others


def limit(count: str) -> None:
    """Use at most this many devices in this process. Raises UserError (exit USAGE) if JAX sees fewer."""
    global _most
    there = len(jax.local_devices())
    if not count.isdecimal() or not 1 <= int(count) <= there:
        raise UserError(f"--devices {count} is out of range: JAX sees {there}, give 1 to {there}", USAGE)
    _most = int(count)


def taken() -> list[jax.Device]:
    """Return the devices of this process that are used."""
    return jax.local_devices()[:_most]


def taken_by_all() -> list[jax.Device]:
    """Return the devices of all processes that are used: those of process 0 first."""
    return [device for index in range(jax.process_count()) for device in jax.local_devices(index)[:_most]]


def mesh(members: int = 1, rows: int | None = None, devices: Sequence[jax.Device] | None = None) -> Mesh | None:
    """Return the mesh of a training step; None of a single device.

    Args:
        members: Number of models that are trained at the same time.
        rows: Number of rows in a batch.
        devices: The devices of the mesh; those taken if not given.

    Raises:
        UserError: Exit code USAGE, with what fits, if the devices of a group do not divide the rows.
    """
    devices = np.array(devices or taken())
    if len(devices) == 1:
        return None
    groups = math.gcd(members, len(devices))
    each = len(devices) // groups
    if rows is not None and rows % each:
        fitting = max(n for n in range(1, len(devices)) if rows % (n // math.gcd(members, n)) == 0)
        unfit = f"--batch_size {rows} does not divide over {each} devices"
        raise UserError(f"{unfit}: give a multiple of {each}, or --devices {fitting}", USAGE)
    return Mesh(devices.reshape(groups, each), ("member", "data"), axis_types=(AxisType.Auto,) * 2)


def place(state: Any, mesh: Mesh | None, members: int) -> Any:
    """Put each member of a population on the devices of its group, or one model on every device."""
    if mesh is None:
        return state
    sharding = _sharding(mesh, members)
    put = partial(jax.make_array_from_callback, sharding=sharding)
    return jax.tree.map(lambda leaf: put(leaf.shape, data_callback=lambda index: leaf[index]), state)


def hold(state: Any, mesh: Mesh | None, members: int) -> Any:
    """Place, under jit, what a program returns as `place` does."""
    return state if mesh is None else jax.lax.with_sharding_constraint(state, _sharding(mesh, members))


def gather(state: Any, mesh: Mesh | None) -> Any:
    """Return a state with each array whole on one device of this process."""
    if mesh is None or not _of_several_processes(mesh):
        return state if mesh is None else jax.device_put(state, mesh.devices.flat[0])
    # On a CPU two programs of several processes that run at once can wait for each other for ever.
    copies = jax.block_until_ready(_everywhere(jax.block_until_ready(state), mesh))
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data, copies)


@partial(jax.jit, static_argnames="mesh")
def _everywhere(state: Any, mesh: Mesh) -> Any:
    return jax.lax.with_sharding_constraint(state, NamedSharding(mesh, PartitionSpec()))


def readable(tree: Any, mesh: Mesh | None) -> Any:
    """Return a tree as arrays of which this process can read the whole."""
    return gather(tree, mesh) if _of_several_processes(mesh) else tree


def spread(tree: Any, mesh: Mesh | None) -> Any:
    """Spread, under jit, the leading axis of every array over the devices of a group, where they divide it."""
    if mesh is None or mesh.shape["data"] == 1:
        return tree

    def over(leaf: jax.Array) -> jax.Array:
        if not leaf.ndim or leaf.shape[0] % mesh.shape["data"]:
            return leaf
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec("data")))

    return jax.tree.map(over, tree)


def each_group(function: Callable[[Any, Mesh | None], Any], state: Any, mesh: Mesh) -> Any:
    """Call function(state of a group's members, mesh of the group) for all groups at once, and join what they return.

    So a program knows of its own members alone, and is the very program that one device runs: the bits of a member do
    not depend on how many devices there are. The state given may be donated.
    """
    rows, sharding = [row for row in mesh.devices if {*row} & {*jax.local_devices()}], _sharding(mesh, 2)
    meshes = [Mesh(row[None], mesh.axis_names, axis_types=mesh.axis_types) if len(row) > 1 else None for row in rows]
    # All parts are taken before the first of them is donated, which ends the life of the whole.
    parts = [jax.tree.map(partial(_of_group, row, own), state) for row, own in zip(rows, meshes, strict=True)]
    with ThreadPoolExecutor() as pool:  # each device compiles the program, which takes a core
        found = list(pool.map(function, parts, meshes))
    return jax.tree.map(lambda *leaves: _together_again(leaves, sharding), *found)


def _sharding(mesh: Mesh, members: int) -> NamedSharding:
    """Return the sharding of a state: members over groups, and whole on each device of a group."""
    return NamedSharding(mesh, PartitionSpec("member") if members > 1 else PartitionSpec())


def _of_group(devices: np.ndarray, mesh: Mesh | None, leaf: jax.Array) -> jax.Array:
    shards = [shard.data for shard in leaf.addressable_shards if shard.device in devices]
    if mesh is None:
        return shards[0]
    return jax.make_array_from_single_device_arrays(shards[0].shape, _sharding(mesh, 2), shards)


def _together_again(leaves: Sequence[jax.Array], sharding: NamedSharding) -> jax.Array:
    shape = (len(leaves[0]) * sharding.mesh.shape["member"], *leaves[0].shape[1:])
    shards = [shard.data for leaf in leaves for shard in leaf.addressable_shards]
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


# Several processes, which all call each of these functions at the same time.
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
    address = None if coordinator == "auto" else coordinator
    late = threading.Timer(PATIENCE, _give_up, [coordinator])  # since JAX would abort this process instead
    late.daemon, bind = True, None
    proxies = {name: os.environ.pop(name) for name in [*os.environ] if name.lower().endswith("_proxy")}  # of the web
    try:
        numbers = [None if given is None else int(given) for given in (processes, index)]
        if address is not None:
            host, _, port = address.rpartition(":")
            host = host.strip("[]")
            family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
            # An own name may be a loopback address in this machine's hosts file, and others may know it by another.
            bind = address if _is_loopback(host) else None
            if numbers[1] == 0:
                socket.create_server((host, int(port)) if bind else ("", int(port)), family=family).close()
            _take_number(f"{address} {index}")
        late.start()
        jax.config.update("jax_enable_recoverability", True)  # nor does JAX abort it where another one is lost
        jax.distributed.initialize(
            address,
            *numbers,
            coordinator_bind_address=bind,
            initialization_timeout=10 * PATIENCE,
            heartbeat_timeout_seconds=SILENCE,
        )
    except (ImportError, OSError, OverflowError, RuntimeError, ValueError) as error:
        raise UserError(f"this process cannot join others at {coordinator} ({error}): {REMEDY}", USAGE) from None
    finally:
        late.cancel()
        os.environ.update(proxies)
    if len(jax.devices()) != jax.process_count() * jax.local_device_count():
        raise UserError("processes have different numbers of devices: give all as many", USAGE)
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
            raise UserError(GONE + ("" if bind else _own_name()), LOST) from None
        raise


def _own_name() -> str:
    """Return a remedy where this machine's own name is an address that other machines cannot reach it by."""
    with suppress(OSError):
        name = socket.gethostname()
        if ip_address(address := socket.gethostbyname(name)).is_loopback:
            return f"; on several machines, give {name} another address than {address} in the hosts file"
    return ""


def part() -> None:
    """End what processes compute together: none of them is missed, until `connect`."""
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


def connect(mesh: Mesh | None) -> None:
    """Let the devices of several processes find each other now: later, one may compile longer than another waits."""
    if not _of_several_processes(mesh):
        return
    _together.set()
    most(0)  # waits for all, however long
    split, whole = (NamedSharding(mesh, spec) for spec in (PartitionSpec("member", "data"), PartitionSpec()))
    cells = jax.make_array_from_callback(mesh.devices.shape, split, lambda index: np.zeros((1, 1), np.float32))
    along_each_axis = jax.jit(lambda cells: (cells, cells.sum(0), cells.sum(1), cells.sum()), out_shardings=whole)
    jax.block_until_ready(along_each_axis(cells))


def _of_several_processes(mesh: Mesh | None) -> bool:
    return mesh is not None and not {*mesh.devices.flat} <= {*jax.local_devices()}


def _take_number(name: str) -> None:
    """Raise UserError (exit USAGE) if another process of this machine has a number, for which JAX would abort both."""
    taken = _leaving.enter_context(socket.socket(socket.AF_UNIX))
    try:
        taken.bind(f"\0apformer {name}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fault = f"--process {name.rpartition(' ')[2]} is that of another process on this machine"
            raise UserError(f"{fault}: give each its own, 0 to N - 1", USAGE) from None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _give_up(coordinator: str) -> None:
    remedy = "start all of them, process 0 on that machine, and open the port"
    print(f"apformer: not all processes came to {coordinator} within {PATIENCE} s: {remedy}", file=sys.stderr)
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
