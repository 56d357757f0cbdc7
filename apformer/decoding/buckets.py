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
    rows_before_J = np.cumsum([0, *rows_J])
    cost_J = np.append(0.0, np.full(len(length_J), np.inf))
    splits = []
    while len(splits) < (most or len(length_J)):
        total_J = np.full_like(cost_J, np.inf)
        split_J = np.zeros(len(cost_J), int)
        i = 0
        for j, length in enumerate(length_J, 1):
            cost_I = cost_J[i:j] + (rows_before_J[j] - rows_before_J[i:j]) * length
            i += int(cost_I.argmin())  # the best split of more lengths is never an earlier one
            total_J[j], split_J[j] = cost_I.min(), i
        if total_J[-1] + width_cost >= cost_J[-1]:  # every next width saves less than the one before it
            break
        cost_J = total_J
        splits.append(split_J)
    chosen = []
    j = len(length_J)
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
