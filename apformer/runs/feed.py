"""Read rows that do not fit into memory: those of the next steps, while the device works on the steps before.

    device     | steps   1-50 | steps 51-100 | steps 101-150 |
    this file  | read  51-100 | read 101-150 | read  151-200 |

The rows of a step depend only on the key of its batch, so a resumed run reads the same rows.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from apformer import train
from apformer.machine import devices
from apformer.settings import Training
from apformer.tasks import Feed

MOST = 2**26  # bytes of a piece, if one step does not need more; up to three pieces are in memory


def pieces(
    feed: Feed | None, key: jax.Array, run: Training, step: int, mesh: Mesh | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield (number of steps, their rows) for each piece of a run from a step on; the next is always being read.

    A multiple of log_every ends a piece. Raises UserError if rows cannot be read.

    Args:
        feed: That of the task; None if its rows lie on the device: then the rows of a piece are None.
        key: Root of the run's randomness, one for each member if there are several.
        run: Settings of training.
        step: Number of steps so far.
        mesh: Mesh of the devices that hold the rows, or None.
    """
    if feed is None:
        for begin, end in _spans(step, run, run.log_every):
            yield end - begin, None
        return
    draw, key = train.sample_batches(feed.draw, run.accumulate), jnp.copy(key)  # the state that holds it is donated

    def read(places: Any) -> Any:
        rows = feed.read(jax.tree.map(np.asarray, places))
        return jax.device_put(rows) if mesh is None else devices.place(rows, mesh, run.members)

    parts = -(-run.log_every * run.accumulate * feed.bytes * run.members // MOST)
    with ThreadPoolExecutor(1) as pool:
        reading = (
            (end - begin, pool.submit(read, _draw(key, begin, draw, end - begin)))
            for begin, end in _spans(step, run, -(-run.log_every // parts))
        )
        piece = next(reading, None)
        while piece:
            steps, rows = piece
            # Places are drawn now, before the device gets its next piece: else it would finish that first.
            piece = next(reading, None)
            yield steps, rows.result()


def _spans(step: int, run: Training, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first step and the end of each piece of at most `size` steps."""
    while step < run.steps:
        end = min(step + size, step - step % run.log_every + run.log_every, run.steps)
        yield step, end
        step = end


@partial(jax.jit, static_argnames=("draw", "steps"))
def _draw(key: jax.Array, step: int, draw: Callable, steps: int) -> Any:
    """Return draw(key of the batch) for `steps` steps from `step` on; the first axis is that of members, if several."""

    def of_member(key: jax.Array) -> Any:
        steps_N = step + jnp.arange(steps, dtype=jnp.int32)
        # One after the other, as the steps themselves draw: not every generator gives the same numbers under vmap.
        return jax.lax.map(lambda step: draw(train.keys_of(key, step)[1]), steps_N)

    return jax.lax.map(of_member, key) if key.ndim else of_member(key)
