"""All devices that JAX sees as one mesh, ('member', 'data'): members first, then the rows of a batch.

    8 devices, a population of 4:    4 groups of 2; each trains one member, and each device of a group half of the rows
    8 devices, one model:            1 group of 8; each device computes an eighth of the rows

Parameters are whole on every device of a group, and XLA adds up their gradients. With one device nothing here does
anything. A run of several processes trains on the devices of all, and does all else on its own. (https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html)
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from apformer.errors import USAGE, UserError
from apformer.machine import agreement

_most = None  # how many devices of a process the user gives us; None for all


def limit(count):
    """Use at most this many devices in this process. Raises UserError (exit USAGE) if JAX sees fewer."""
    global _most
    there = len(jax.local_devices())
    if not count.isdecimal() or not 1 <= int(count) <= there:
        raise UserError(f"--devices {count} is out of range: JAX sees {there}, give 1 to {there}", USAGE)
    _most = int(count)


def taken():
    """The devices of this process that are used."""
    return jax.local_devices()[:_most]


def taken_by_all():
    """The devices of all processes that are used: those of process 0 first."""
    return [device for process in range(jax.process_count()) for device in jax.local_devices(process)[:_most]]


def mesh(members=1, rows=None, devices=None):
    """The mesh of a training step; None of a single device.

    rows: of a batch. devices: those taken if not given. Raises UserError (exit USAGE) that says what fits if the
    devices of a group do not divide the rows.
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


def place(state, mesh, members):
    """The state of a population with each member on its group, or that of one model on every device."""
    if mesh is None:
        return state
    sharding = _sharding(mesh, members)

    def put(leaf):
        parts = sharding.addressable_devices_indices_map(leaf.shape).items()
        parts = [jax.device_put(leaf[index], device) for device, index in parts]
        return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)

    return jax.tree.map(put, state)


def hold(state, mesh, members):
    """Under jit: what `place` does, for what a program returns."""
    return state if mesh is None else jax.lax.with_sharding_constraint(state, _sharding(mesh, members))


def gather(state, mesh):
    """The state on one device of this process."""
    if mesh is None:
        return state
    if not _of_several_processes(mesh):
        return jax.device_put(state, mesh.devices.flat[0])
    return agreement.whole(state, mesh)


def readable(tree, mesh):
    """The tree as arrays of which this process can read the whole."""
    return gather(tree, mesh) if _of_several_processes(mesh) else tree


def connect(mesh):
    """Let the devices of a mesh find each other now, if they are of several processes.

    Later one process may compile longer than the half minute that another waits for it the first time.
    """
    if not _of_several_processes(mesh):
        return
    agreement.most(0)  # waits for all, however long
    cells = place(jnp.zeros(mesh.devices.shape), mesh, 1)
    everywhere, split = (NamedSharding(mesh, spec) for spec in (PartitionSpec(), PartitionSpec("member", "data")))

    def along_each_axis(cells):
        cells = jax.lax.with_sharding_constraint(cells, split)
        return cells, cells.sum(0), cells.sum(1), cells.sum()

    jax.block_until_ready(jax.jit(along_each_axis, out_shardings=everywhere)(cells))


def _of_several_processes(mesh):
    return mesh is not None and not {*mesh.devices.flat} <= {*jax.local_devices()}


def spread(tree, mesh):
    """Under jit: the leading axis of every array over the devices of a group, where they divide it."""
    if mesh is None or mesh.shape["data"] == 1:
        return tree

    def over(leaf):
        if not leaf.ndim or leaf.shape[0] % mesh.shape["data"]:
            return leaf
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec("data")))

    return jax.tree.map(over, tree)


def each_group(function, state, mesh):
    """function(state of a group's members, mesh of the group) for all groups at the same time, put together again.

    So a program knows of its own members alone, and is the very program that one device runs: the bits of a member do
    not depend on how many devices there are. The state given may be donated.
    """
    rows, sharding = [row for row in mesh.devices if {*row} & {*jax.local_devices()}], _sharding(mesh, 2)
    meshes = [Mesh(row[None], mesh.axis_names, axis_types=mesh.axis_types) if len(row) > 1 else None for row in rows]
    # All parts are taken before the first of them is donated, which ends the life of the whole.
    parts = [jax.tree.map(partial(_of_group, row, own), state) for row, own in zip(rows, meshes, strict=True)]
    with ThreadPoolExecutor() as pool:  # each device compiles the program, which takes a core
        found = list(pool.map(function, parts, meshes))
    return jax.tree.map(lambda *leaves: _together(leaves, sharding), *found)


def _sharding(mesh, members):
    """Of a state: members over groups, and whole on each device of a group."""
    return NamedSharding(mesh, PartitionSpec("member") if members > 1 else PartitionSpec())


def _of_group(devices, mesh, leaf):
    shards = [shard.data for shard in leaf.addressable_shards if shard.device in devices]
    if mesh is None:
        return shards[0]
    return jax.make_array_from_single_device_arrays(shards[0].shape, _sharding(mesh, 2), shards)


def _together(leaves, sharding):
    shape = (len(leaves[0]) * sharding.mesh.shape["member"], *leaves[0].shape[1:])
    shards = [shard.data for leaf in leaves for shard in leaf.addressable_shards]
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)
