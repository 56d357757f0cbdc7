"""The best that any predictor can do: the Bayes predictor, which knows the generator (but not the split).

Only the first term and the difference are unpredictable: after the second term all is known. With M differences, the
N numbers of terms that a difference allows, and C_n numbers at which n such terms can start,

    p(first, difference) = 1/M * 1/N * sum over n of [n terms from `first` fit] / C_n.

The first character is given, so a row costs -log p(first, difference) + log p(first character) nats, and the floor is
[H(first, difference) - H(first character)] / E[characters - 1]. Downwards is upwards seen in the mirror
first -> 10^D - 1 - first. For each difference p is a staircase over `first` with a step at each C_n, so nothing here
enumerates first terms.
"""

from collections.abc import Iterator

import numpy as np

from apformer.tasks.progressions.generator import Array, Config, Progressions, longest, most_terms

_CELLS = 2**20  # of arrays (differences or rows, numbers of terms) held in memory at a time


def bayes_nats(progressions: Progressions, cfg: Config) -> np.ndarray:
    """Return the nats that the Bayes predictor pays for each whole row, its first character given.

    They are float64 of shape (B,); infinite where the generator never draws such a first term and difference.
    """
    first_B, difference_B = (np.asarray(a, np.int64) for a in progressions[:2])
    size = _block(cfg)
    starts = range(0, len(first_B), size)
    p_B = np.concatenate([probability(first_B[i : i + size], difference_B[i : i + size], cfg) for i in starts])
    p_character_B = _p_first_character(cfg)[first_B // 10 ** (cfg.digits - 1)]
    return -np.log(p_B / p_character_B, out=np.full(p_B.shape, -np.inf), where=p_B > 0)


def probability(first_B: Array, difference_B: Array, cfg: Config) -> Array:
    """Return p(first, difference) of numpy or JAX integers (B,), as floats; 0 of what the generator never draws."""
    xp = difference_B.__array_namespace__()
    from_edge_B = xp.where(difference_B < 0, 10**cfg.digits - 1 - first_B, first_B)
    starts_BN, weight_BN = _starts(difference_B, cfg)
    p_B = xp.where(from_edge_B[:, None] < starts_BN, weight_BN, 0.0).sum(1)
    return xp.where((cfg.min_difference <= difference_B) & (difference_B <= cfg.max_difference), p_B, 0.0)


def bayes_floor(cfg: Config) -> float:
    """Return the loss of the Bayes predictor in nats per predicted character, over the whole generator."""
    nats, terms = 0.0, 0.0
    for difference_M in _blocks(cfg):
        starts_MN, weight_MN = _starts(difference_M, cfg)
        p_MN = weight_MN.cumsum(1)
        width_MN = -np.diff(starts_MN, axis=1, append=0)
        nats -= (width_MN * p_MN * np.log(p_MN)).sum()
        terms += (cfg.min_terms + longest(difference_M, cfg)).sum() / 2 / _differences(cfg)
    p_character = _p_first_character(cfg)
    nats += (p_character * np.log(p_character, out=np.zeros(10), where=p_character > 0)).sum()
    return float(nats / (terms * (cfg.digits + 1) - 2))


def _p_first_character(cfg: Config) -> np.ndarray:
    """Return p(first character), (10,): differences of p(first < edge) at the edges 0, 1, .. 10 times 10^(D-1)."""
    edges = np.arange(11) * 10 ** (cfg.digits - 1)
    p_below = np.zeros(11)
    for difference_M in _blocks(cfg):
        starts_MN, weight_MN = _starts(difference_M, cfg)
        for i, edge in enumerate(edges):
            from_edge_M = np.where(difference_M < 0, edges[-1] - edge, edge)
            p_M = (weight_MN * np.minimum(starts_MN, from_edge_M[:, None])).sum(1)
            p_below[i] += np.where(difference_M < 0, 1 / _differences(cfg) - p_M, p_M).sum()
    return np.maximum(np.diff(p_below), 0)


def _starts(difference_M: Array, cfg: Config) -> tuple[Array, Array]:
    """Return C_n, 0 where n is more terms than fit, and the weight 1/(M N C_n) of each; both of shape (M, N)."""
    xp = difference_M.__array_namespace__()
    terms_N = xp.arange(cfg.min_terms, most_terms(cfg) + 1, dtype=difference_M.dtype)
    longest_M = longest(difference_M, cfg)
    fits_MN = terms_N[None, :] <= longest_M[:, None]
    starts_MN = xp.where(fits_MN, 10**cfg.digits - (terms_N - 1)[None, :] * abs(difference_M)[:, None], 0)
    choices_M = xp.maximum(longest_M - cfg.min_terms + 1, 1).astype(float)
    ways_MN = _differences(cfg) * choices_M[:, None] * xp.maximum(starts_MN, 1).astype(float)
    return starts_MN, xp.where(fits_MN, 1 / ways_MN, 0.0)


def _differences(cfg: Config) -> int:
    return cfg.max_difference - cfg.min_difference + 1


def _blocks(cfg: Config) -> Iterator[np.ndarray]:
    size = _block(cfg)
    for start in range(cfg.min_difference, cfg.max_difference + 1, size):
        yield np.arange(start, min(start + size, cfg.max_difference + 1))


def _block(cfg: Config) -> int:
    return max(1, _CELLS // most_terms(cfg))
