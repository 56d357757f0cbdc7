"""From scores to weights: the mask is applied, and each key gets its share of a query's attention.

    softmax      weight_s = exp(score_s) / sum_r exp(score_r)
    geometric    weight_s = sigmoid(score_s) prod_{r < s} (1 - sigmoid(score_r))

Keys r and s are those that the query may see. All others have the weight 0.

Geometric attention (Csordas et al. 2022, here from the oldest key on) has no softmax: each key takes a share of what
the keys before it have left. A head may then look for the first key of a kind, however many others stand before it.
What it reads does not depend on how many keys there are.

A sink is one more key for each head, with a learned score and the value 0 (Xiao et al. 2024): a head may then read
nothing, and tell one token from several that are equal, which an average of equal values cannot.
"""

import jax
import jax.numpy as jnp


def weigh(scores_BHTS, mask_BTS, weighting="softmax", sink_H=None):
    """The weights of the keys that a query may see: (B, H, T, S)."""
    return geometric(scores_BHTS, mask_BTS) if weighting == "geometric" else softmax(scores_BHTS, mask_BTS, sink_H)


def softmax(scores_BHTS, mask_BTS, sink_H=None):
    """Weights that sum to 1 over the keys that a query may see, or to less where a sink has the rest."""
    S = scores_BHTS.shape[-1]
    # A finite minimum: a row that sees nothing (padding) then averages its keys instead of giving NaN.
    scores_BHTS = jnp.where(mask_BTS[:, None], scores_BHTS, jnp.finfo(scores_BHTS.dtype).min)
    if sink_H is not None:
        sink_BHT1 = jnp.broadcast_to(sink_H[None, :, None, None], (*scores_BHTS.shape[:3], 1))
        scores_BHTS = jnp.concatenate([scores_BHTS, sink_BHT1.astype(scores_BHTS.dtype)], axis=-1)
    return jax.nn.softmax(scores_BHTS, axis=-1)[..., :S]


def geometric(scores_BHTS, mask_BTS):
    """Each key that a query may see takes the share sigmoid(score) of what those before it have left."""
    seen_BHTS = mask_BTS[:, None]
    kept_BHTS = jnp.where(seen_BHTS, jax.nn.log_sigmoid(-scores_BHTS), 0.0)
    left_BHTS = jnp.cumsum(jnp.pad(kept_BHTS[..., :-1], ((0, 0), (0, 0), (0, 0), (1, 0))), axis=-1)
    return jnp.where(seen_BHTS, jnp.exp(left_BHTS + jax.nn.log_sigmoid(scores_BHTS)), 0.0)
