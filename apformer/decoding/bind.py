"""A model with its parameters bound, as evaluation and generation want it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Model(NamedTuple):
    """The functions of one model. They are pure, and may be jitted.

    apply(tokens_BT) -> logits_BTV; extend(tokens_BT, cache, lengths_B=None) -> (logits_BTV, cache);
    init_cache(batch_size, length) -> cache. An encoder-decoder is asked through `params` and `cfg` instead.
    """

    apply: Callable
    extend: Callable
    init_cache: Callable
    params: Any = None
    cfg: Any = None


def bind(architecture, params, cfg):
    """The Model of a module, such as `apformer.model`, with these parameters and this Config.

    Matrix products are at the highest precision, so that what is certified is what predicts, on a GPU or a TPU too.
    """
    listed = architecture.unstack(params)  # so that no step cuts the parameters of a layer out of a stack

    def apply(tokens_BT):
        with jax.default_matmul_precision("highest"):
            return architecture.apply(params, tokens_BT, cfg)

    def extend(tokens_BT, cache, lengths_B=None):
        with jax.default_matmul_precision("highest"):
            return architecture.extend(listed, tokens_BT, cache, cfg, lengths_B=lengths_B)

    def init_cache(batch_size, length):
        return architecture.init_cache(cfg, batch_size, length)

    return Model(apply, extend, init_cache, params, cfg)
