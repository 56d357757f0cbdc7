"""What is asked of a model for its page: a few held-out rows, whole and with each part switched off, and its errors.

The rows are few enough for the page to ask them again at once, by the same measure, when its reader switches parts off.
"""

import re
from dataclasses import replace

import jax
import numpy as np

from apformer.analysis import ablate
from apformer.tasks import batch as batches
from apformer.tasks import choose
from apformer.tasks.digits import generator as wide
from apformer.tasks.progressions import generator
from apformer.tasks.progressions import training as task
from apformer.tasks.progressions.evaluation import carries
from apformer.tasks.text import corpus
from apformer.tokenizers import digits as tokenizer

ROWS, TOKENS = 64, 4096  # of held-out rows: at most
EXAMPLES, LETTERS = 6, 40  # prompts that the page offers, and characters of a text in each


def of_model(settings, rows, params, vocabulary):
    """What a page holds of its model: {"probe": rows, "ablation": what each part is worth, "examples": prompts}."""
    batch = _few(choose.module(settings.data).validation_batch(settings, rows), settings)
    tokens_BT, weights_BT, *rest = (np.asarray(leaf) for leaf in batch)
    found = {
        "tokens": tokens_BT.tolist(),
        "weights": weights_BT.astype(float).tolist(),
        "terms": _terms(settings, tokens_BT, weights_BT, *rest),
    }
    return {
        "probe": found,
        "ablation": ablate.drops(params, _measure(settings, batch)),
        "examples": _prompts(settings, tokens_BT, weights_BT, vocabulary),
    }


def _few(batch, settings):
    """Rows spread over a validation batch, as a batch of two dimensions."""
    leaves = jax.tree.leaves(batch)
    leaves = [np.asarray(leaf).reshape(-1, leaf.shape[-1]) for leaf in leaves]
    count = max(1, min(ROWS, TOKENS // leaves[0].shape[1]))
    kind = wide.Batch if isinstance(settings.data, wide.Config) else batches.Batch
    return kind(*(leaf[:: max(1, len(leaf) // count)][:count] for leaf in leaves))


def _measure(settings, batch):
    """A function from parameters to {"loss", "exact"} of the rows, in float32, "exact" where something is right."""
    settings = replace(settings, training=replace(settings.training, compute_dtype="float32"))
    if isinstance(settings.data, corpus.Config):
        batch = jax.tree.map(lambda leaf: leaf[None], batch)  # its loss takes batches of rows
    batch = task.Step(batch) if choose.module(settings.data) is task else batch
    loss_fn = choose.module(settings.data).make_loss(settings)

    def measure(params):
        with jax.default_matmul_precision("highest"):
            return loss_fn(params, batch, None)[1]

    return measure


def _terms(settings, tokens_BT, weights_BT, term_BT=None):
    """The number of the term that each character counts for as a target, -1 if it counts for none; None of a text."""
    if isinstance(settings.data, corpus.Config):
        return None
    if term_BT is None:
        place_T = np.arange(tokens_BT.shape[1])
        term_BT = np.broadcast_to((place_T + 1) // (settings.data.digits + 1), tokens_BT.shape)
    return np.where((weights_BT > 0) & (term_BT >= 2), term_BT, -1).tolist()


def _prompts(settings, tokens_BT, weights_BT, vocabulary):
    """How rows begin: the first three terms of those that have so many, or some characters of a text."""
    if isinstance(settings.data, corpus.Config):
        beginnings = ("".join(vocabulary[token] for token in tokens_T) for tokens_T in tokens_BT[:EXAMPLES])
        return [beginning[: min(LETTERS, tokens_BT.shape[1] // 2)] for beginning in beginnings]
    lengths_B = np.max(np.where(weights_BT > 0, np.arange(1, tokens_BT.shape[1] + 1), 0), axis=1)
    lines = (tokenizer.decode(tokens_T[:length]) for tokens_T, length in zip(tokens_BT, lengths_B, strict=True))
    beginnings = [terms[:3] for terms in map(str.split, lines) if len(terms) >= 3]
    beginnings.sort(key=lambda terms: abs(int(terms[2]) - int(terms[0])) > 10 ** len(terms[0]) // 4)  # room to go on
    return [" ".join(terms) for terms in beginnings[:EXAMPLES]]


def floor(settings, rows):
    """The Bayes predictor's loss on the validation rows, where they are drawn from a generator; else None."""
    drawn = choose.module(settings.data) is task and rows is None
    return task.validation_floor(settings) if drawn else None


def explained(errors, cfg):
    """The wrong terms of an evaluation, each with its first term and difference, carries and what training had near."""
    return [error | _explain(error, cfg) for error in errors]


def _explain(error, cfg):
    terms = [int(term) for term in error["row"].split()]
    first, difference = terms[0], terms[1] - terms[0]
    before = terms[error["term"] - 2]
    near = _nearest_in_training(first, difference, cfg)
    return {
        "first": first,
        "difference": difference,
        "carries": int(carries(np.array([before]), np.array([difference]), cfg.digits)[0]),
        "well_formed": re.fullmatch(f" [0-9]{{{cfg.digits}}}", error["predicted"]) is not None,
        "nearest": None if near is None else generator.render(*near, 3, cfg.digits),
    }


def _nearest_in_training(first, difference, cfg):
    """(first, difference) of the three training terms nearest to those of a row; None if there are none near."""
    top = 10**cfg.digits - 1
    for away in range(100):
        for start in {first - away, first + away}:
            inside = 0 <= start <= top and 0 <= start + 2 * difference <= top
            if inside and generator.split_of(np.array([difference]), np.array([start]))[0] == 0:
                return start, difference
    return None
