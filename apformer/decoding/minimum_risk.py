"""Of several texts, the one that agrees most with the others (minimum Bayes risk; Kumar & Byrne 2004).

    c* = argmax_c sum_j p_j overlap(c, c_j),        p = softmax(score / T)
    overlap(c, c') = mean_n 2 |n-grams of both| / (|n-grams of c| + |n-grams of c'|),        n = 1 .. 4

The most likely text can stand alone, while many that are a little less likely say nearly the same. The overlap stands
for BLEU, which counts the same n-grams. If one of the texts is right, drawn by p, c* has the least expected loss.
"""

from collections import Counter

import numpy as np

ORDERS = (1, 2, 3, 4)
TEMPERATURE = 0.4  # of scores as those of beam search; chosen on validation sentences


def best(texts, scores_W):
    """The number of the text c*, the first of equal ones. A text whose score is -inf is left out.

    texts: W sequences of tokens; scores_W: their scores, at least one of them finite.
    """
    scores_W = np.asarray(scores_W, np.float64)
    p_W = np.exp((scores_W - scores_W.max()) / TEMPERATURE)
    kept = np.flatnonzero(np.isfinite(scores_W))
    grams = {w: [ngrams(texts[w], n) for n in ORDERS] for w in kept}
    return int(max(kept, key=lambda w: sum(p_W[j] * overlap(grams[w], grams[j]) for j in kept)))


def ngrams(text, n):
    """How often each n-gram stands in a text, as a Counter."""
    return Counter(zip(*(text[start:] for start in range(n)), strict=False))


def overlap(first, second):
    """The mean overlap of the n-grams of two texts, 0 to 1; orders that neither of them has are equal, 1."""
    shares = [_share(one, other) for one, other in zip(first, second, strict=True)]
    return sum(shares) / len(shares)


def _share(one, other):
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0
