"""What is asked of a model for its page: a few held-out rows, of the whole model and with each part switched off.

The rows are few enough for the page to ask them again at once, by the same measure, when its reader switches parts off.
"""

from dataclasses import replace

import jax
import numpy as np

from apformer.analysis import ablate

ROWS, TOKENS = 64, 4096  # of held-out rows: at most
EXAMPLES = 6  # prompts that the page offers


def few(batch):
    """Some rows, spread over a validation batch of two or more dimensions, as numpy arrays of two."""
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, leaf.shape[-1]), batch)
    kept = max(1, min(ROWS, TOKENS // rows.tokens_BT.shape[1]))
    return jax.tree.map(lambda leaf: leaf[:: max(1, len(leaf) // kept)][:kept], rows)


def spread(items, count):
    """At most `count` items of a list, spread evenly from its first to its last."""
    return [items[n] for n in np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)]


def exactly(settings):
    """The settings of a run with float32 in place of its compute_dtype, as the page computes."""
    return replace(settings, training=replace(settings.training, compute_dtype="float32"))


def drops(params, measure):
    """What each part is worth, from a function of parameters that gives {"loss"} or {"loss", "exact"}."""

    def precise(params):
        with jax.default_matmul_precision("highest"):
            return measure(params)

    return ablate.drops(params, precise)


def probe(batch, term_BT=None):
    """The rows that the page asks again.

    term_BT: the number of the term, from 0, that each character counts for as a target; those of the first two terms
    count for none. None where nothing is right or wrong.
    """
    terms = None if term_BT is None else np.where((batch.weights_BT > 0) & (term_BT >= 2), term_BT, -1).tolist()
    return {"tokens": batch.tokens_BT.tolist(), "weights": batch.weights_BT.astype(float).tolist(), "terms": terms}


def first_terms(batch, decode, count=3):
    """How some rows of terms begin, those with room to go on first."""
    lengths_B = np.max(np.where(batch.weights_BT > 0, np.arange(1, batch.tokens_BT.shape[1] + 1), 0), axis=1)
    lines = (decode(tokens_T[:length]) for tokens_T, length in zip(batch.tokens_BT, lengths_B, strict=True))
    found = [terms[:count] for terms in map(str.split, lines) if len(terms) >= count]
    found.sort(key=lambda terms: abs(int(terms[-1]) - int(terms[0])) > 10 ** len(terms[0]) // 4)
    return [" ".join(terms) for terms in found[:EXAMPLES]]
