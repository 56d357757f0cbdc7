"""Buckets: rows of many lengths in few static shapes, so that little is padding and little is compiled.

    cost(widths) = sum over rows of the first width that holds the row   +   each * number of widths

`widths` finds the cheapest widths, `batches` cuts the rows of each width into batches of about as many tokens.
"""

from collections.abc import Iterator

import numpy as np

from apformer.machine import devices


def widths(length_J: np.ndarray, rows_J: np.ndarray, *, each: float = 0, most: int | None = None) -> tuple[int, ...]:
    """Return the widths, rising, that cost least; the last is the greatest length.

    length_J: different lengths, rising. rows_J: how many rows have each. each: what one more width costs, in units of
    padded length. most: how many widths there may be.
    """
    # With one more width, the j shortest lengths cost what the i < j shortest do, and the others as much as the j-th.
    rows_before_J = np.concatenate([[0], np.cumsum(rows_J)])
    cost_J, splits = np.append(0.0, np.full(len(length_J), np.inf)), []
    while len(splits) < (most or len(length_J)):
        total_J, split_J, i = np.full_like(cost_J, np.inf), np.zeros(len(cost_J), int), 0
        for j, length in enumerate(length_J, 1):
            cost_I = cost_J[i:j] + (rows_before_J[j] - rows_before_J[i:j]) * length
            i += int(cost_I.argmin())  # the best split of more lengths is never an earlier one
            total_J[j], split_J[j] = cost_I.min(), i
        if total_J[-1] + each >= cost_J[-1]:  # each further width saves less than the one before it
            break
        cost_J = total_J
        splits.append(split_J)
    found, j = [], len(length_J)
    for split_J in reversed(splits):
        found.append(int(length_J[j - 1]))
        j = split_J[j]
    return tuple(reversed(found))


def batches(width_N: np.ndarray, batch_tokens: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield (rows, rows of the batch, width), narrow ones first; batches of one width are of one size.

    width_N: the padded width of each row. rows: indices of the rows that are new. Rows of the batch: the same, and some
    of them again until the batch is full. A batch holds one row, or at most batch_tokens tokens, for each device.
    """
    each = len(devices.taken())
    for width in np.unique(width_N):
        alike = np.flatnonzero(width_N == width)
        count = -(-len(alike) // (each * max(1, batch_tokens // int(width))))
        size = -(-len(alike) // count)  # the fewest batches, then the fewest rows
        size = -(-size // each) * each  # which devices share alike
        for start in range(0, len(alike), size):
            rows = alike[start : start + size]
            yield rows, np.resize(rows, size), int(width)
