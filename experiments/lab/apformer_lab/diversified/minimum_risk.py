"""Choose, of several texts, the one that agrees most with the others (minimum Bayes risk; Kumar & Byrne 2004).

    c* = argmax_c sum_j p_j overlap(c, c_j),        p = softmax(score / T)
    overlap(c, c') = mean_n 2 |n-grams of both| / (|n-grams of c| + |n-grams of c'|),    n = 1 .. 4, if there are any

The most likely text may be unlike all others, while many that are a little less likely say nearly the same. The overlap
stands in for BLEU, which counts the same n-grams. If p is the probability that a text is right, c* has the least
expected loss.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

ORDERS = (1, 2, 3, 4)
TEMPERATURE = 0.4  # of scores as those of beam search; chosen on validation sentences


def best(texts: Sequence[Sequence], scores_W: Sequence[float] | np.ndarray) -> int:
    """Return the index of the text c*, the first one in a tie.

    Args:
        texts: W sequences of tokens.
        scores_W: Score of each; texts whose score is not finite are left out. If none is finite, the answer is 0.
    """
    scores_W = np.asarray(scores_W, np.float64)
    finite = np.flatnonzero(np.isfinite(scores_W))
    if not len(finite):
        return 0
    p_W = np.exp((scores_W - scores_W[finite].max()) / TEMPERATURE)
    grams = {w: ngrams(texts[w]) for w in finite}
    return int(max(finite, key=lambda w: sum(p_W[j] * overlap(grams[w], grams[j]) for j in finite)))


def ngrams(text: Sequence) -> list[Counter]:
    """Count the n-grams of a text, for each order."""
    return [Counter(zip(*(text[start:] for start in range(n)), strict=False)) for n in ORDERS]


def overlap(first: list[Counter], second: list[Counter]) -> float:
    """Return the mean overlap of the n-grams of two texts, 0 to 1, over the orders that either has; 1 if none."""
    orders = [(one, other, one.total() + other.total()) for one, other in zip(first, second, strict=True)]
    shares = [2 * (one & other).total() / total for one, other, total in orders if total]
    return sum(shares) / len(shares) if shares else 1.0
