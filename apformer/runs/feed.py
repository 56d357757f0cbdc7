"""Read rows that do not fit into memory: those of the next steps, while the device works on the steps before.

    device     | steps   1-50 | steps 51-100 | steps 101-150 |
    this file  | read  51-100 | read 101-150 | read  151-200 |

The rows of a step depend only on the key of its batch, so a resumed run reads the same rows.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


class Feeding:
    """Read the rows of a run's steps in pieces; the next piece is always being read in the background.

    feed: that of the task, or None if its rows lie on the device. key: the root of the run's randomness, one for each
    member if there are several.
    """

    def __init__(self, feed: Feed | None, key: jax.Array, run: Training, mesh: Mesh | None = None) -> None:
        self.feed, self.run, self.mesh, self.next_piece = feed, run, mesh, None
        self.pool = ThreadPoolExecutor(1)
        if feed is not None:
            parts = -(-run.log_every * run.accumulate * feed.bytes * run.members // MOST)
            self.steps, self.read = -(-run.log_every // parts), feed.read
            self.draw = train.sample_batches(feed.draw, run.accumulate)
            # A copy, since the state that holds the key is donated to the first steps.
            self.key = jnp.copy(key)

    def __enter__(self) -> "Feeding":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def pieces(self, step: int, until: int) -> Iterator[tuple[int, Any]]:
        """Yield (number of steps, their rows or None) for each piece of the chunk of steps from `step` to `until`.

        Raises UserError if rows cannot be read.
        """
        if self.feed is None:
            yield until - step, None
            return
        while step < until:
            end, fed = (self.next_piece or self._begin(step)).result()
            self.next_piece = self._begin(end) if end < self.run.steps else None
            yield end - step, fed
            step = end

    def _begin(self, step: int) -> Future:
        """Start to read the piece that begins with a step; return a future of (its end, its rows)."""
        end = min(step + self.steps, step - step % self.run.log_every + self.run.log_every, self.run.steps)
        # Places are drawn now, before the device gets its next piece: else it would finish that first.
        return self.pool.submit(self._read, end, _draw(self.key, step, self.draw, end - step))

    def _read(self, end: int, places: Any) -> tuple[int, Any]:
        rows = self.read(jax.tree.map(np.asarray, places))
        return end, jax.device_put(rows) if self.mesh is None else devices.place(rows, self.mesh, self.run.members)


@partial(jax.jit, static_argnames=("draw", "steps"))
def _draw(key: jax.Array, step: int, draw: Callable, steps: int) -> Any:
    """Return draw(key of the batch) for `steps` steps from `step` on; the first axis is that of members, if several."""

    def of_member(key: jax.Array) -> Any:
        steps_N = step + jnp.arange(steps, dtype=jnp.int32)
        # One after the other, as the steps themselves draw: not every generator gives the same numbers under vmap.
        return jax.lax.map(lambda step: draw(train.keys_of(key, step)[1]), steps_N)

    return jax.lax.map(of_member, key) if key.ndim else of_member(key)
