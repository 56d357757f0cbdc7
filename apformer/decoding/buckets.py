"""Buckets: pad rows of many lengths to few widths, so that little is padding and few shapes are compiled.

    cost(widths) = sum over rows of the first width that holds the row   +   width_cost * number of widths

`widths` finds the cheapest widths; `batches` cuts the rows of each width into batches of about equally many tokens.
"""

from collections.abc import Iterator

import numpy as np

from apformer.machine import devices


def widths(
    length_J: np.ndarray, rows_J: np.ndarray, *, width_cost: float = 0, most: int | None = None
) -> tuple[int, ...]:
    """Return the widths that cost least, in rising order; the last is the greatest length.

    Args:
        length_J: Different lengths, rising.
        rows_J: Number of rows of each length.
        width_cost: Cost of one more width, in units of padded length.
        most: Most widths; None for any number.
    """
    # Dynamic programming over j, the number of shortest lengths; one more width pads lengths i + 1 .. j to the j-th.
    rows_before_J, longest_J = (np.append(0, x_J) for x_J in (np.cumsum(rows_J), length_J))
    padded_IJ = (rows_before_J[None] - rows_before_J[:, None]) * longest_J[None]
    padded_IJ = np.where(np.tri(len(longest_J), dtype=bool), np.inf, padded_IJ)  # at least one length has each width
    cost_J, splits = np.append(0.0, np.full(len(length_J), np.inf)), []
    while len(splits) < (most or len(length_J)):
        total_IJ = cost_J[:, None] + padded_IJ
        if total_IJ[:, -1].min() + width_cost >= cost_J[-1]:  # every next width saves less than the one before it
            break
        cost_J = total_IJ.min(axis=0)
        splits.append(total_IJ.argmin(axis=0))
    chosen, j = [], len(length_J)
    for split_J in reversed(splits):
        chosen.append(int(length_J[j - 1]))
        j = split_J[j]
    return tuple(reversed(chosen))


def batches(width_N: np.ndarray, batch_tokens: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield (rows, rows_of_batch, width) of batches, narrow ones first; batches of one width have one size.

    rows are indices into width_N; rows_of_batch are the same, repeated until the batch is full.

    Args:
        width_N: Padded width of each row.
        batch_tokens: Most tokens of a batch on each device, unless it holds a single row.
    """
    n_devices = len(devices.taken())
    for width in np.unique(width_N):
        all_rows = np.flatnonzero(width_N == width)
        count = -(-len(all_rows) // (n_devices * max(1, batch_tokens // int(width))))
        size = -(-len(all_rows) // count)  # the fewest batches, then the fewest rows
        size = -(-size // n_devices) * n_devices  # equally many rows on each device
        for start in range(0, len(all_rows), size):
            rows = all_rows[start : start + size]
            yield rows, np.resize(rows, size), int(width)
