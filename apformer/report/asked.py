"""Questions that a page asks a model: a few held-out rows, with the whole model and with each part switched off.

The rows are few enough for the page to ask them again at once, by the same measure, when its reader switches parts off.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from apformer.settings import Settings

ROWS, TOKENS = 64, 4096  # of held-out rows: at most
EXAMPLES = 6  # prompts that the page offers


def few(batch: Any) -> Any:
    """Return some rows, spread over a validation batch of two or more dimensions, as numpy arrays of two."""
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, leaf.shape[-1]), batch)
    count = max(1, min(ROWS, TOKENS // rows.tokens_BT.shape[1]))
    return jax.tree.map(lambda leaf: leaf[:: max(1, len(leaf) // count)][:count], rows)


def spread(items: Sequence, count: int) -> list:
    """Return at most `count` items, spread evenly from the first to the last."""
    return [items[n] for n in np.linspace(0, len(items) - 1, min(count, len(items))).astype(int)]


def exactly(settings: Settings) -> Settings:
    """Return the settings of a run with the compute_dtype of the page, float32."""
    return replace(settings, training=replace(settings.training, compute_dtype="float32"))


def probe(batch: Any, term_BT: np.ndarray | None = None) -> dict[str, list | None]:
    """Return the rows that the page asks again.

    Args:
        batch: A few rows.
        term_BT: Number of the term, from 0, that each character belongs to as a target; those of the first two terms
            are not judged. None where nothing is right or wrong.
    """
    terms = None if term_BT is None else np.where((batch.weights_BT > 0) & (term_BT >= 2), term_BT, -1).tolist()
    return {"tokens": batch.tokens_BT.tolist(), "weights": batch.weights_BT.astype(float).tolist(), "terms": terms}
