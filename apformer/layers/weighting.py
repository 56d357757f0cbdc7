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


@jax.custom_jvp
def softmax_mean(scores_BHTS, mask_BTS, v_BSHK):
    """(y_BTHK, weights_BHTS): the mean of the values by the weights of `softmax`, without a sink, and these weights.

        y_t = sum_s weight_ts v_s
        dy_t = sum_s weight_ts dscore_ts v_s - (sum_s weight_ts dscore_ts) y_t + sum_s weight_ts dv_s

    The gradient of the equations would take the sum of weight times derivative over the keys, for each query. With the
    derivative written so, it takes sum_k dy_k y_k instead, which is as many numbers as a head is wide.
    """
    weights_BHTS = softmax(scores_BHTS, mask_BTS).astype(v_BSHK.dtype)
    return mean(weights_BHTS, v_BSHK), weights_BHTS


@softmax_mean.defjvp
def _derivative(primals, tangents):
    (scores_BHTS, mask_BTS, v_BSHK), (dscores_BHTS, _, dv_BSHK) = primals, tangents
    precise_BHTS = softmax(scores_BHTS, mask_BTS)
    weights_BHTS = precise_BHTS.astype(v_BSHK.dtype)
    y_BTHK = mean(weights_BHTS, v_BSHK)
    moved_BHTS = jnp.where(mask_BTS[:, None], precise_BHTS * dscores_BHTS, 0.0)
    whole_BHT1 = moved_BHTS.sum(-1, keepdims=True)
    less_BTHK = whole_BHT1.swapaxes(1, 2) * y_BTHK.astype(whole_BHT1.dtype)
    dy_BTHK = mean(moved_BHTS.astype(v_BSHK.dtype), v_BSHK) - less_BTHK.astype(v_BSHK.dtype)
    dweights_BHTS = (moved_BHTS - precise_BHTS * whole_BHT1).astype(v_BSHK.dtype)
    return (y_BTHK, weights_BHTS), (dy_BTHK + mean(weights_BHTS, dv_BSHK), dweights_BHTS)


def mean(weights_BHTS, v_BSHK):
    """The sum of weight times value over the keys: (B, T, H, K)."""
    return jnp.einsum("BHTS,BSHK->BTHK", weights_BHTS, v_BSHK)


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
