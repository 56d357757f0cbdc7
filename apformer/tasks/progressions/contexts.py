"""Every progression there is, numbered, so that all can be visited: the ground of a certificate.

A row is a first term and a difference; as many of its terms are taken as fit the digits, up to a limit M. Rows are
grouped by how many terms that is, since rows of like length are computed together. Of each difference d the rows of
`low` to `high` terms are those with

    top - high |d| < first <= top - (low - 1) |d|,   first >= 0,   top = 10^D - 1

(for d < 0 counted from the top down), so that row number i is found by looking i up in the running sum of their counts.
"""

from dataclasses import dataclass

import numpy as np

from apformer.tasks.progressions.generator import Config, Progressions


@dataclass(frozen=True)
class Group:
    """The rows of `low` to `high` terms; with `open`, those that could go on are cut to `high` terms."""

    low: int
    high: int
    open: bool
    cfg: Config

    def __len__(self):
        return int(self._before()[-1])

    def rows(self, start, count):
        """Rows number start .. start + count - 1; beyond the last row it repeats."""
        before_K = self._before()
        index_B = np.minimum(np.arange(start, start + count), before_K[-1] - 1)
        kind_B = np.searchsorted(before_K, index_B, side="right") - 1
        difference_B = _differences(self.cfg)[kind_B]
        first_B = self._bounds()[0][kind_B] + index_B - before_K[kind_B]
        top = 10**self.cfg.digits - 1
        fitting_B = np.where(difference_B == 0, self.high, 1 + (top - first_B) // np.maximum(abs(difference_B), 1))
        terms_B = np.minimum(fitting_B, self.high)
        columns = np.where(difference_B < 0, top - first_B, first_B), difference_B, terms_B
        return Progressions(*(column_B.astype(np.int32) for column_B in columns))

    def _bounds(self):
        """The first and the last first term of each difference, counted from the top for negative ones."""
        size_K, top = abs(_differences(self.cfg)), 10**self.cfg.digits - 1
        from_K = np.zeros_like(size_K) if self.open else np.maximum(0, top - self.high * size_K + 1)
        return from_K, top - (self.low - 1) * size_K

    def _before(self):
        """Rows of smaller differences, for each difference, and at last of all."""
        from_K, to_K = self._bounds()
        return np.concatenate([[0], np.cumsum(np.maximum(0, to_K - from_K + 1))])


def _differences(cfg):
    return np.arange(cfg.min_difference, cfg.max_difference + 1, dtype=np.int64)


def count_at_least(cfg: Config, most: int):
    """How many rows have at least 3, 4 ... `most` terms: int64 array, whose sum is the number of contexts they hold."""
    return np.array([len(Group(n, most, True, cfg)) for n in range(3, most + 1)], np.int64)


def groups(cfg: Config, bounds):
    """The groups whose longest rows have bounds[0] < bounds[1] < ... terms; the last takes all that could go on."""
    lows = [3, *(bound + 1 for bound in bounds[:-1])]
    return [Group(low, high, high == bounds[-1], cfg) for low, high in zip(lows, bounds, strict=True)]
