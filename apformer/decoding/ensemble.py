"""Several models that write one text together (an ensemble): a token has the mean of the probabilities they give it.

    p(y_t | y_<t) = 1/M sum_m p_m(y_t | y_<t)

The models may have different shapes, but must have the same vocabulary.
"""

import jax
import jax.numpy as jnp


def together(extends):
    """extend(tokens_BT, cache, lengths_B=None) -> (logits_BTV, cache) of all models together.

    Its logits are log p above, and its cache is `join` of the caches of the models.
    """

    def extend(tokens_BT, cache, lengths_B=None):
        found = [each(tokens_BT, own, lengths_B=lengths_B) for each, own in zip(extends, _apart(cache), strict=True)]
        logp_MBTV = jnp.stack([jax.nn.log_softmax(logits_BTV) for logits_BTV, _ in found])
        return jax.nn.logsumexp(logp_MBTV, axis=0) - jnp.log(len(found)), join([own for _, own in found])

    return extend


def join(caches):
    """The caches of several models as one, under the names that each of them has."""
    return {name: tuple(cache[name] for cache in caches) for name in caches[0]}


def _apart(cache):
    return [dict(zip(cache, values, strict=True)) for values in zip(*cache.values(), strict=True)]
