"""All devices that JAX sees as one mesh, ('member', 'data'): members first, then the rows of a batch.

    8 devices, a population of 4:    4 groups of 2; each trains one member, and each device of a group half of the rows
    8 devices, one model:            1 group of 8; each device computes an eighth of the rows

Every device of a group has all parameters, and XLA adds up their gradients. With one device these functions do nothing
(https://docs.jax.dev/en/latest/notebooks/Distributed_arrays_and_automatic_parallelization.html).
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from apformer.errors import UserError
from apformer.machine import processes

_most: int | None = None  # number of devices of a process to use; None for all


def limit(count: str) -> None:
    """Use at most this many devices in this process. Raises UserError (exit USAGE) if JAX sees fewer."""
    global _most
    available = len(jax.local_devices())
    if not count.isdecimal() or not 1 <= int(count) <= available:
        raise UserError(f"--devices {count} is out of range: JAX sees {available}, give 1 to {available}")
    _most = int(count)


def taken() -> list[Any]:  # jax.Device is no type to a checker
    """Return the devices of this process to use."""
    return jax.local_devices()[:_most]


def mesh(members: int = 1, rows: int | None = None) -> Mesh | None:
    """Return the mesh of a training step; None for a single device.

    Args:
        members: Number of models that are trained at the same time.
        rows: Number of rows in a batch of all processes. With None, the mesh has only the devices of this process.

    Raises:
        UserError: Exit code USAGE, with what fits, if the devices of a group do not divide the rows.
    """
    everywhere = [device for index in range(jax.process_count()) for device in jax.local_devices(index)[:_most]]
    used = np.array(taken() if rows is None else everywhere)  # those of process 0 first
    if len(used) == 1:
        return None
    groups = math.gcd(members, len(used))
    group_size = len(used) // groups
    if rows is not None and rows % group_size:
        fitting = max(n for n in range(1, len(used)) if rows % (n // math.gcd(members, n)) == 0)
        fewer = f", or --devices {fitting}" if jax.process_count() == 1 else ""
        fault = f"--batch_size {rows} does not divide over {group_size} devices"
        raise UserError(f"{fault}: give a multiple of {group_size}{fewer}")
    return Mesh(used.reshape(groups, group_size), ("member", "data"), axis_types=(AxisType.Auto,) * 2)


def place(state: Any, mesh: Mesh | None, members: int) -> Any:
    """Put each member of a population on the devices of its group, or one model on every device."""
    if mesh is None:
        return state
    sharding = _sharding(mesh, members)
    return jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, sharding, leaf.__getitem__), state)


def hold(state: Any, mesh: Mesh | None, members: int) -> Any:
    """Place the result of a program as `place` does, under jit."""
    return state if mesh is None else jax.lax.with_sharding_constraint(state, _sharding(mesh, members))


def readable(tree: Any, mesh: Mesh | None) -> Any:
    """Return a tree as arrays that this process can read."""
    if mesh is None or not mesh.is_multi_process:
        return tree
    # On a CPU two programs of several processes that run at once can wait for each other for ever.
    copies = jax.block_until_ready(_held(jax.block_until_ready(tree), mesh, 1))
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), copies)


_held = jax.jit(hold, static_argnames=("mesh", "members"))


def spread(tree: Any, mesh: Mesh | None) -> Any:
    """Spread the leading axis of each array over the devices of a group if they divide it, under jit."""
    if mesh is None or mesh.shape["data"] == 1:
        return tree

    def over(leaf: jax.Array) -> jax.Array:
        if not leaf.ndim or leaf.shape[0] % mesh.shape["data"]:
            return leaf
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec("data")))

    return jax.tree.map(over, tree)


def each_group(function: Callable[[Any, Mesh | None], Any], state: Any, mesh: Mesh) -> Any:
    """Call function(state of a group's members, mesh of the group) for all groups at once, and join the results.

    Each group runs the program of one device, so the bits of a member do not depend on the number of devices. The
    argument `state` may be donated.
    """
    rows, sharding = [row for row in mesh.devices if {*row} & {*jax.local_devices()}], _sharding(mesh, 2)
    meshes = [Mesh(row[None], mesh.axis_names, axis_types=mesh.axis_types) if len(row) > 1 else None for row in rows]
    # Take all parts before the first is donated, which deletes the state.
    parts = [jax.tree.map(partial(_of_group, row, group), state) for row, group in zip(rows, meshes, strict=True)]
    with ThreadPoolExecutor() as pool:  # each device compiles the program on its own
        results = list(pool.map(function, parts, meshes))

    def join(*leaves: jax.Array) -> jax.Array:
        shape = (len(leaves[0]) * mesh.shape["member"], *leaves[0].shape[1:])
        shards = [shard.data for leaf in leaves for shard in leaf.addressable_shards]
        return jax.make_array_from_single_device_arrays(shape, sharding, shards)

    return jax.tree.map(join, *results)


def _sharding(mesh: Mesh, members: int) -> NamedSharding:
    """Return the sharding of a state: members over groups, replicated over the devices of a group."""
    return NamedSharding(mesh, PartitionSpec("member") if members > 1 else PartitionSpec())


def _of_group(devices: np.ndarray, mesh: Mesh | None, leaf: jax.Array) -> jax.Array:
    shards = [shard.data for shard in leaf.addressable_shards if shard.device in devices]
    if mesh is None:
        return shards[0]
    return jax.make_array_from_single_device_arrays(shards[0].shape, _sharding(mesh, 2), shards)


def connect(mesh: Mesh | None) -> None:
    """Connect the devices of several processes before they compile, since one may compile longer than another waits."""
    if mesh is None or not mesh.is_multi_process:
        return
    processes.begin()
    split, replicated = NamedSharding(mesh, PartitionSpec("member", "data")), _sharding(mesh, 1)
    cells = jax.make_array_from_callback(mesh.devices.shape, split, lambda index: np.zeros((1, 1), np.float32))
    along_each_axis = jax.jit(lambda cells: (cells, cells.sum(0), cells.sum(1), cells.sum()), out_shardings=replicated)
    jax.block_until_ready(along_each_axis(cells))
