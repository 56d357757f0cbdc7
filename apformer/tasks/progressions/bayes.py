"""The Bayes predictor: the least possible loss of a predictor that knows the generator, but not the split.

Only the first term and the difference are unpredictable: after the second term all is known. With M differences, N
numbers of terms that a difference allows, and C_n first terms from which n terms fit,

    p(first, difference) = 1/M * 1/N * sum over n of [n terms from `first` fit] / C_n.

The first character is given, so a row costs -log p(first, difference) + log p(first character) nats, and the floor is
[H(first, difference) - H(first character)] / E[characters - 1]. Negative differences mirror positive ones by
first -> 10^D - 1 - first. For each difference p is a step function of `first` with a step at each C_n, so first terms
need not be enumerated.
"""

from collections.abc import Iterator

import numpy as np

from apformer.tasks.progressions.generator import Array, Config, Progressions, check, longest, most_terms

_CELLS = 2**20  # most elements of an array (differences or rows, numbers of terms)


def bayes_nats(progressions: Progressions, cfg: Config) -> np.ndarray:
    """Return the Bayes predictor's nats of each row, given its first character.

    They are float64 of shape (B,); infinite for a first term and difference that the generator never draws.
    """
    first_B, difference_B = (np.asarray(a, np.int64) for a in progressions[:2])
    size = _block(cfg)
    starts = range(0, len(first_B), size)
    p_B = np.concatenate([probability(first_B[i : i + size], difference_B[i : i + size], cfg) for i in starts])
    p_character_B = _p_first_character(cfg)[first_B // 10 ** (cfg.digits - 1)]
    return -np.log(p_B / p_character_B, out=np.full(p_B.shape, -np.inf), where=p_B > 0)


def probability(first_B: Array, difference_B: Array, cfg: Config) -> Array:
    """Return p(first, difference) of numpy or JAX integers (B,), as floats; 0 for rows that are never drawn."""
    xp = difference_B.__array_namespace__()
    from_edge_B = xp.where(difference_B < 0, 10**cfg.digits - 1 - first_B, first_B)
    starts_BN, weight_BN = _starts(difference_B, cfg)
    p_B = xp.where(from_edge_B[:, None] < starts_BN, weight_BN, 0.0).sum(1)
    return xp.where((cfg.min_difference <= difference_B) & (difference_B <= cfg.max_difference), p_B, 0.0)


def bayes_floor(cfg: Config) -> float:
    """Return the loss of the Bayes predictor in nats per predicted character, over the whole generator."""
    check(cfg)
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
    """Return C_n (0 if n terms do not fit) and, where they do, the weights 1/(M N C_n), both of shape (M, N)."""
    xp = difference_M.__array_namespace__()
    terms_N = xp.arange(cfg.min_terms, most_terms(cfg) + 1, dtype=difference_M.dtype)
    longest_M = longest(difference_M, cfg)
    fits_MN = terms_N[None, :] <= longest_M[:, None]
    starts_MN = xp.where(fits_MN, 10**cfg.digits - (terms_N - 1)[None, :] * abs(difference_M)[:, None], 0)
    choices_M = xp.maximum(longest_M - cfg.min_terms + 1, 1).astype(float)
    ways_MN = _differences(cfg) * choices_M[:, None] * xp.maximum(starts_MN, 1).astype(float)
    return starts_MN, 1 / ways_MN


def _differences(cfg: Config) -> int:
    return cfg.max_difference - cfg.min_difference + 1


def _blocks(cfg: Config) -> Iterator[np.ndarray]:
    size = _block(cfg)
    for start in range(cfg.min_difference, cfg.max_difference + 1, size):
        yield np.arange(start, min(start + size, cfg.max_difference + 1))


def _block(cfg: Config) -> int:
    return max(1, _CELLS // most_terms(cfg))
