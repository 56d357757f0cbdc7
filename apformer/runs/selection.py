"""Which checkpoint, and which member of a population, is the best."""

import numpy as np


def score(validation):
    """What the best checkpoint and the best member have the least of: wrong terms, and between equals, loss.

    Not loss alone: on a small file it rises as the first two terms are memorised, while the rule is still learned. Of a
    text, where nothing is right or wrong, loss alone. validation: {"loss": ..., "exact": ...}, numbers or arrays.
    """
    loss = np.asarray(validation["loss"], np.float64)
    return loss if "exact" not in validation else 1.0 - np.asarray(validation["exact"], np.float64) + 1e-4 * loss


def validation(record):
    """{"loss": ..., ...} of the validation rows from a record of metrics.jsonl; empty where it has none."""
    prefix = "validation_"
    return {name.removeprefix(prefix): value for name, value in record.items() if name.startswith(prefix)}
