"""A model with its parameters bound, as evaluation and generation want it."""

import jax

from apformer import model
from apformer.runs import recipes


def bound(params, cfg):
    """The model's functions with parameters and config bound, as evaluation and generation want them.

    Matrix products are at the highest precision, so that what is certified is what predicts, on a GPU or a TPU too.
    """
    architecture = recipes.module(cfg)
    listed = model.unstack(params) if architecture is model else params  # not cut out of a stack at every step

    def apply(tokens_BT):
        with jax.default_matmul_precision("highest"):
            return architecture.apply(params, tokens_BT, cfg)

    def extend(tokens_BT, cache, lengths_B=None):
        with jax.default_matmul_precision("highest"):
            return architecture.extend(listed, tokens_BT, cache, cfg, lengths_B=lengths_B)

    return {
        "apply": apply,
        "extend": extend,
        "init_cache": lambda batch_size, length: architecture.init_cache(cfg, batch_size, length),
    }
