"""Every progression there is, by tens, numbered, so that all can be visited: the ground of a certificate.

A row is a first term and a difference; as many of its terms are taken as fit the digits, up to a limit M. A ten is the
ten rows that differ in the last digit of the second term alone,

    T_1 = 10 c - b      T_2 = 10 c + (0 .. 9)      differences b .. b + 9

so that a model reads the characters before this digit once for all of them. Each ten has its own b and c. Its longest
row is that of the difference d nearest to 0, among those that are asked, and has n terms or more if

    0 <= T_1 <= top,      0 <= T_1 + (n - 1) d <= top      top = 10^D - 1

which is a range of c for each b. So ten number i is found by looking i up in the running sum of their counts. Tens are
grouped by how many terms the longest row has, since rows of like length are computed together.
"""

from dataclasses import dataclass

import numpy as np

from apformer.tasks.progressions.generator import Config, Progressions, fitting


@dataclass(frozen=True)
class Group:
    """The tens whose longest row has `low` to `high` terms; with `open`, rows that could go on are cut to `high`."""

    low: int
    high: int
    open: bool
    cfg: Config

    def __len__(self):
        return int(self._before()[-1])

    def rows(self, start, count):
        """The 10 * count rows of the tens number start .. start + count - 1; beyond the last ten it repeats.

        A row of a ten has 2 terms if it has no more, or if its difference is not asked.
        """
        before_K = self._before()
        index_G = np.minimum(np.arange(start, start + count), before_K[-1] - 1)
        kind_G = np.searchsorted(before_K, index_G, side="right") - 1
        c_G, b_G = self._bounds()[0][kind_G] + index_G - before_K[kind_G], _kinds(self.cfg)[0][kind_G]
        first_B, difference_B = np.repeat(10 * c_G - b_G, 10), (b_G[:, None] + np.arange(10)).ravel()
        fitting_B = fitting(first_B, difference_B, self.cfg.digits)
        asked_B = (self.cfg.min_difference <= difference_B) & (difference_B <= self.cfg.max_difference)
        terms_B = np.where(asked_B, np.minimum(fitting_B, self.high), 2)
        return Progressions(*(column_B.astype(np.int32) for column_B in (first_B, difference_B, terms_B)))

    def _bounds(self):
        """The least and the greatest c of each b."""
        from_K, to_K = _at_least(self.cfg, self.low)
        if self.open:
            return from_K, to_K
        longer_from_K, longer_to_K = _at_least(self.cfg, self.high + 1)
        falling_K = _kinds(self.cfg)[1] < 0
        from_K = np.where(falling_K, from_K, np.maximum(from_K, longer_to_K + 1))
        return from_K, np.where(falling_K, np.minimum(to_K, longer_from_K - 1), to_K)

    def _before(self):
        """Tens of smaller b, for each b, and at last of all."""
        from_K, to_K = self._bounds()
        return np.concatenate([[0], np.cumsum(np.maximum(0, to_K - from_K + 1))])


def _kinds(cfg):
    """b, and the asked difference nearest to 0 of its tens."""
    b_K = np.arange(cfg.min_difference - 9, cfg.max_difference + 1, dtype=np.int64)
    return b_K, np.clip(0, np.maximum(b_K, cfg.min_difference), np.minimum(b_K + 9, cfg.max_difference))


def _at_least(cfg, terms):
    """The least and the greatest c of each b, where the longest row has at least `terms` terms."""
    b_K, d_K = _kinds(cfg)
    span_K = (terms - 1) * d_K
    return -((np.minimum(0, span_K) - b_K) // 10), (10**cfg.digits - 1 + b_K - np.maximum(0, span_K)) // 10


def count_at_least(cfg: Config, most: int):
    """How many rows have at least 3, 4 ... `most` terms: int64 array, whose sum is the number of contexts they hold."""
    size_K = abs(np.arange(cfg.min_difference, cfg.max_difference + 1, dtype=np.int64))
    return np.array([np.maximum(0, 10**cfg.digits - (n - 1) * size_K).sum() for n in range(3, most + 1)], np.int64)


def groups(cfg: Config, bounds):
    """The groups whose longest rows have bounds[0] < bounds[1] < ... terms; the last takes all that could go on."""
    lows = [3, *(bound + 1 for bound in bounds)][: len(bounds)]
    return [Group(low, high, high == bounds[-1], cfg) for low, high in zip(lows, bounds, strict=True)]
