"""Beam search: keep the k most likely prefixes of a text at each step.

    score(Y) = log p(Y | X) / lp(|Y|),    lp(n) = ((5 + n) / 6)^alpha

Wu et al. 2016, equation 14, without the coverage penalty; alpha = 0.6 in Vaswani et al. 2017, and with alpha = 0 the
score is the log-probability. |Y| counts the end token. Each step extends the unfinished beams of a row by every token
and keeps the best. A beam that ends is set aside, and the row continues with one beam fewer (Sutskever et al. 2014), so
one beam is greedy search. Beams that can no longer reach the best score of their row are dropped. The beams of a row
are neighbours on the batch axis; one gather reorders the leaves of the cache that they do not share.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class _State(NamedTuple):
    """The unfinished and the finished (done) beams after n steps."""

    n: Array
    last_BW: Array  # newest token of each unfinished beam
    logp_BW: Array  # log-probability of each unfinished beam; -inf if dropped
    tokens_BWN: Array
    done_score_BW: Array
    done_tokens_BWN: Array
    cache: dict  # leaves that beams do not share


def search(
    extend: Callable,
    cache: dict[str, Any],
    start_B: Array,
    end: Array | int,
    steps: int,
    *,
    beams: int = 4,
    alpha: float = 0.6,
    shared: tuple[str, ...] = (),
) -> tuple[Array, Array, Array]:
    """Return the best `beams` texts of each row, best first: (tokens_BWN, lengths_BW, scores_BW).

    Pure; steps, beams, alpha and shared are static under jit.

    Args:
        extend: extend(tokens_BT, cache) -> (logits_BTV, cache), with its parameters bound.
        cache: One row for each of start_B, with room for `steps` more tokens.
        start_B: First token of each row.
        end: Token that ends a text.
        steps: Most tokens of a text, its end token included.
        beams: Number of beams.
        alpha: Length penalty.
        shared: Names in the cache that all beams of a row read and `extend` does not change, such as an encoded
            source. `extend` gets one row of these for `beams` rows of the others.

    Returns:
        Each text ends with the token `end`, which its length counts and which fills the row after it, unless it was
        cut off at `steps`. If fewer than `beams` texts were finished, the score of the others is -inf.

    Raises:
        ValueError: For fewer than 1 beam or step, or a negative alpha.
    """
    if beams < 1 or steps < 1 or alpha < 0:
        raise ValueError(f"beams {beams} and steps {steps} must be at least 1, and alpha {alpha} at least 0")
    B, W = start_B.shape[0], beams
    dtype = np.promote_types(jax.eval_shape(extend, start_B[:, None], cache)[0].dtype, np.float32)
    never = jnp.full((B, W), -jnp.inf, dtype)
    per_beam = {name: leaf for name, leaf in cache.items() if name not in shared}
    blank_BWN = jnp.full((B, W, steps), end, jnp.int32)
    state = _State(
        n=jnp.int32(0),
        last_BW=jnp.broadcast_to(start_B[:, None], (B, W)).astype(jnp.int32),
        logp_BW=never.at[:, 0].set(0.0),  # all beams are equal at first: use one
        tokens_BWN=blank_BWN,
        done_score_BW=never,
        done_tokens_BWN=blank_BWN,
        cache=jax.tree.map(lambda leaf: jnp.repeat(leaf, W, axis=0), per_beam),
    )

    def penalty(n: Array) -> Array:
        """Return ((5 + n) / 6)^alpha for a text of n tokens (Wu et al. 2016)."""
        return ((5 + n.astype(dtype)) / 6) ** alpha

    def best(state: _State, logp_BW: Array, tokens_BWN: Array, n: Array) -> tuple[Array, Array]:
        """Return the W best of the finished beams and of others of n tokens: (scores_BW, tokens_BWN)."""
        scores_BJ = jnp.concatenate([state.done_score_BW, logp_BW / penalty(n)], 1)
        tokens_BJN = jnp.concatenate([state.done_tokens_BWN, tokens_BWN], 1)
        scores_BW, best_BW = jax.lax.top_k(scores_BJ, W)
        return scores_BW, jnp.take_along_axis(tokens_BJN, best_BW[:, :, None], axis=1)

    def unfinished(state: _State) -> Array:
        return (state.n < steps) & jnp.isfinite(state.logp_BW).any()

    def step(state: _State) -> _State:
        logits_B1V, extended = extend(state.last_BW.reshape(B * W, 1), cache | state.cache)
        n, logits_BWV = state.n + 1, logits_B1V.reshape(B, W, -1).astype(dtype)
        # The W best of a row are among the W best of each beam, so only these become log-probabilities.
        best_BWJ, token_BWJ = jax.lax.top_k(logits_BWV, min(W, logits_BWV.shape[-1]))
        step_logp_BWJ = best_BWJ - jax.nn.logsumexp(logits_BWV, axis=-1, keepdims=True)
        logp_BJ = (state.logp_BW[:, :, None] + step_logp_BWJ).reshape(B, -1)
        logp_BW, chosen_BW = jax.lax.top_k(logp_BJ, W)
        beams_left_B = W - jnp.isfinite(state.done_score_BW).sum(1)
        logp_BW = jnp.where(jnp.arange(W)[None] < beams_left_B[:, None], logp_BW, -jnp.inf)
        parent_BW = chosen_BW // token_BWJ.shape[-1]
        last_BW = jnp.take_along_axis(token_BWJ.reshape(B, -1), chosen_BW, axis=1).astype(jnp.int32)
        tokens_BWN = jnp.take_along_axis(state.tokens_BWN, parent_BW[:, :, None], axis=1).at[:, :, state.n].set(last_BW)
        ended_BW = last_BW == end
        done_score_BW, done_tokens_BWN = best(state, jnp.where(ended_BW, logp_BW, -jnp.inf), tokens_BWN, n)
        # Bound on the final score: log-probabilities only fall, and the longest text has the greatest penalty.
        reachable_BW = logp_BW / penalty(jnp.asarray(steps))
        logp_BW = jnp.where(ended_BW | (reachable_BW < done_score_BW[:, :1]), -jnp.inf, logp_BW)
        rows = (jnp.arange(B, dtype=jnp.int32)[:, None] * W + parent_BW).reshape(-1)
        reordered = jax.tree.map(lambda leaf: leaf[rows], {name: extended[name] for name in per_beam})
        return _State(n, last_BW, logp_BW, tokens_BWN, done_score_BW, done_tokens_BWN, reordered)

    state = jax.lax.while_loop(unfinished, step, state)
    scores_BW, tokens_BWN = best(state, state.logp_BW, state.tokens_BWN, state.n)
    return tokens_BWN, jnp.minimum((tokens_BWN != end).sum(-1, dtype=jnp.int32) + 1, steps), scores_BW
