"""How alike a query and a key are, each head for itself: the score before the weights.

scaled_dot   q.k / sqrt(K)                Vaswani et al. 2017, section 3.2.1
dot          q.k                          Luong et al. 2015
cosine       g q.k / (|q| |k|)            Graves et al. 2014; g is learned, and starts at sqrt(K), where the scores
                                          of random vectors have the spread that scaled_dot gives them
additive     v.tanh(q + k)                Bahdanau et al. 2015, whose W s + U h are our query and key; v is learned
none         0                            only the position of a key decides, by the bias of the position scheme; there
                                          are no queries and keys (Tay et al. 2021, the random Synthesizer)
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import at_least_float32


def compare(q_BTHK, k_BSHK, similarity="scaled_dot", gain_H=None, vector_HK=None):
    """How alike queries and keys are: scores_BHTS, in at least float32.

    gain_H: g of cosine; vector_HK: v of additive, which holds B T S H K numbers at once.
    """
    dtype = at_least_float32(q_BTHK.dtype)
    if similarity == "none":
        (B, T, H, _), S = q_BTHK.shape, k_BSHK.shape[1]
        return jnp.zeros((B, H, T, S), dtype)
    if similarity == "additive":
        sums_BTSHK = jnp.tanh(q_BTHK[:, :, None] + k_BSHK[:, None])
        return jnp.einsum("BTSHK,HK->BHTS", sums_BTSHK, vector_HK).astype(dtype)
    if similarity == "cosine":
        q_BTHK, k_BSHK = unit(q_BTHK.astype(dtype)), unit(k_BSHK.astype(dtype))
    scores_BHTS = jnp.einsum("BTHK,BSHK->BHTS", q_BTHK, k_BSHK).astype(dtype)
    if similarity == "cosine":
        return scores_BHTS * gain_H[None, :, None, None].astype(dtype)
    return scores_BHTS if similarity == "dot" else scores_BHTS * jnp.asarray(q_BTHK.shape[-1] ** -0.5, dtype)


def unit(x_BTHK):
    """Every vector at length 1, but for those near 0, so that their gradient stays finite."""
    return x_BTHK * jax.lax.rsqrt(jnp.square(x_BTHK).sum(-1, keepdims=True) + 1e-12)


def parameters(param, similarity, n_heads, width):
    """What a similarity learns, as arguments of `compare`; param(name, initializer, shape) is a parameter."""
    if similarity == "cosine":
        return {"gain_H": param("gain", nn.initializers.constant(width**0.5), (n_heads,))}
    if similarity == "additive":
        return {"vector_HK": param("vector", nn.initializers.normal(width**-0.5), (n_heads, width))}
    return {}
