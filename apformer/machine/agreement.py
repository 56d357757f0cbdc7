"""What the processes of a run tell each other: every one learns what all have.

Each function is called by all processes at the same time, and ends only when it is done on every device of this one. On
a CPU two programs of several processes that run at once can wait for each other for ever.
"""

import hashlib
import json
from functools import partial

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from apformer.errors import DATA, UserError


def whole(tree, mesh):
    """The tree, of arrays that lie on a mesh in parts, with each of them whole on one device of this process."""
    copies = jax.block_until_ready(_everywhere(jax.block_until_ready(tree), mesh))
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data, copies)


@partial(jax.jit, static_argnames="mesh")
def _everywhere(tree, mesh):
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))


def most(number):
    """The greatest of the numbers that the processes give."""
    return int(_of_all([number]).max()) if jax.process_count() > 1 else number


def of_first(value):
    """The value, what JSON can hold, that process 0 gives."""
    if jax.process_count() == 1:
        return value
    text = json.dumps(value).encode() if jax.process_index() == 0 else b""
    numbers = np.zeros(most(len(text)), np.int32)
    numbers[: len(text)] = [*text]
    return json.loads(bytes(_of_all(numbers)[0].astype(np.uint8)))


def agree(what, value):
    """Raises UserError (exit DATA) that names a process whose value is not that of process 0.

    value: what JSON can hold. what: its name.
    """
    if jax.process_count() == 1:
        return
    digests = _of_all([*hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()])
    for device, digest in zip(jax.devices(), digests, strict=True):
        if (digest != digests[0]).any():
            unlike = f"process {device.process_index} reads other {what} than process 0"
            raise UserError(f"{unlike}: give all processes the same files", DATA)


def _of_all(numbers):
    """The numbers that each process gives, a row for each device."""
    mesh = Mesh(np.array(jax.devices()), ("device",), axis_types=(AxisType.Auto,))
    row, sharding = np.asarray([numbers], np.int32), NamedSharding(mesh, PartitionSpec("device"))
    rows = [jax.device_put(row, device) for device in jax.local_devices()]
    shape = (len(jax.devices()), len(numbers))
    return np.asarray(whole(jax.make_array_from_single_device_arrays(shape, sharding, rows), mesh))
