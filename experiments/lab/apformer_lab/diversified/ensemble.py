"""Translate with several models: a token has the mean of the probabilities that they give it.

    p(y_t | y_<t) = 1/M sum_m p_m(y_t | y_<t)

The models may have different shapes, but must have the same vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def together(extends: Sequence[Callable]) -> Callable:
    """Return extend(tokens_BT, cache, lengths_B=None) -> (log p, cache) of several models' extend functions.

    Its cache is `join` of their caches.
    """

    def extend(tokens_BT: jax.Array, cache: dict, lengths_B: jax.Array | None = None) -> tuple[jax.Array, dict]:
        caches = (dict(zip(cache, values, strict=True)) for values in zip(*cache.values(), strict=True))
        found = [each(tokens_BT, own, lengths_B=lengths_B) for each, own in zip(extends, caches, strict=True)]
        logp_MBTV = jnp.stack([jax.nn.log_softmax(logits_BTV) for logits_BTV, _ in found])
        return jax.nn.logsumexp(logp_MBTV, axis=0) - jnp.log(len(found)), join([own for _, own in found])

    return extend


def join(caches: Sequence[dict[str, Any]]) -> dict[str, tuple]:
    """Return the caches of several models as one, under the names that each of them has."""
    return {name: tuple(cache[name] for cache in caches) for name in caches[0]}
