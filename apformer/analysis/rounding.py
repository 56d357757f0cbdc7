"""How far apart the ways of computing the same logits are: what a margin must exceed to mean anything.

The result of a floating-point sum depends on the order of its terms. This order depends on the shape of the batch, the
length of the rows, and the use of a cache. None of these may decide a prediction.
"""

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding.bind import call


def between_ways(tokens_BT, inside_BT, model):
    """Largest difference of logits between batch shapes, and between decoding with a cache and without.

    inside_BT: which tokens count. model: decoding.bind.Model. The cache is filled at once, and by one token after the
    other.
    """
    logits_BTV = call(model.apply, tokens_BT)
    others = [
        np.concatenate([call(model.apply, tokens_BT[b : b + 1]) for b in range(len(tokens_BT))]),
        _through_cache(model, tokens_BT),
        _one_by_one(model, tokens_BT),
    ]
    return max(_difference(logits_BTV, other_BTV, inside_BT) for other_BTV in others)


def context_differences(tokens_BT, inside_BT, characters, terms, apply):
    """What the logits after `terms` terms depend on besides these: two largest differences of logits, (outside, moved).

    A term has `characters` tokens, its space included.

    outside: between two different texts, of any tokens, in the place of what stands before these terms; 0 if no logit
    depends on more. moved: between rows that begin a text and rows that stand in one; of the size of rounding if it
    does not matter where they stand.
    """
    # What is asked for begins with the space after the last of these terms, which its last digit predicts.
    asked_BT = inside_BT & (np.arange(tokens_BT.shape[1]) >= terms * characters - 2)
    random = np.random.default_rng(0)
    before_2BS = random.integers(0, 11, (2, len(tokens_BT), 3 * characters), np.int32)
    one, other = (
        call(apply, np.concatenate([before_BS, tokens_BT], axis=1))[:, 3 * characters :] for before_BS in before_2BS
    )
    return _difference(one, other, asked_BT), _difference(one, call(apply, tokens_BT), asked_BT)


@jax.jit
def _through_cache(model, tokens_BT):
    return model.extend(tokens_BT, model.init_cache(*tokens_BT.shape))[0]


@jax.jit
def _one_by_one(model, tokens_BT):
    def step(cache, tokens_B):
        logits_B1V, cache = model.extend(tokens_B[:, None], cache)
        return cache, logits_B1V[:, 0]

    return jnp.moveaxis(jax.lax.scan(step, model.init_cache(*tokens_BT.shape), tokens_BT.T)[1], 0, 1)


def _difference(one_BTV, other_BTV, inside_BT):
    with np.errstate(invalid="ignore"):  # of logits that are not finite, which count as apart
        apart_BT = abs(np.asarray(one_BTV) - np.asarray(other_BTV)).max(-1)
    return float(np.where(inside_BT, apart_BT, 0.0).max())
