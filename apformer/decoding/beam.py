"""Beam search: keep the k most likely beginnings, and end with the best text of them all.

    score(Y) = log p(Y | X) / lp(|Y|),    lp(n) = ((5 + n) / 6)^alpha

Wu et al. 2016, equation 14, without the coverage penalty; alpha = 0.6 in Vaswani et al. 2017, and with alpha = 0 the
score is the log-probability. |Y| counts the end token. Each step extends the unfinished beams of a row by every token
and keeps the best; one that ends is set aside, and from then on a row keeps one beam fewer (Sutskever et al. 2014), so
that one beam is greedy search. Beams whose score could no longer be the best of their row are dropped. The beams of a
row are neighbours on the batch axis, and one gather moves them through the leaves of the cache that they do not share.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class _State(NamedTuple):
    n: jax.Array  # steps taken
    last_BK: jax.Array  # the newest token of each unfinished beam
    logp_BK: jax.Array  # its log-probability so far
    tokens_BKN: jax.Array
    done_score_BK: jax.Array  # of the finished
    done_tokens_BKN: jax.Array
    done_length_BK: jax.Array
    cache: dict  # what is not shared


def search(extend, cache, start_B, end, steps, *, beams=4, alpha=0.6, shared=()):
    """The best `beams` texts of each row, best first: (tokens_BKN, lengths_BK, scores_BK).

    extend(tokens_BT, cache) -> (logits_BTV, cache) has its parameters bound; the cache holds one row for each of
    start_B, the first tokens, and has room for `steps` more. A text ends with the token `end`, which its length counts,
    or at `steps` tokens, cut off; beyond its length stands `end`. Where fewer than `beams` texts were worth finishing,
    the score of the rest is -inf. shared: names in the cache of what the beams of a row read alike and extend leaves as
    it is, such as what is remembered of a source; of these extend is handed one row for `beams` rows of the rest.
    Pure; steps, beams, alpha and shared are static under jit.
    Raises ValueError for fewer than 1 beam or step, or a negative alpha.
    """
    if beams < 1 or steps < 1 or alpha < 0:
        raise ValueError(f"beams {beams} and steps {steps} must be at least 1, and alpha {alpha} at least 0")
    B, K = start_B.shape[0], beams
    logits_dtype = jax.eval_shape(extend, start_B[:, None], cache)[0].dtype
    dtype = jnp.promote_types(logits_dtype, jnp.float32)
    never = jnp.full((B, K), -jnp.inf, dtype)
    common, own = ({k: v for k, v in cache.items() if (k in shared) == which} for which in (True, False))
    blank_BKN = jnp.full((B, K, steps), end, jnp.int32)
    state = _State(
        n=jnp.zeros((), jnp.int32),
        last_BK=jnp.broadcast_to(start_B[:, None], (B, K)).astype(jnp.int32),
        logp_BK=never.at[:, 0].set(0.0),  # all beams are alike at first: count one
        tokens_BKN=blank_BKN,
        done_score_BK=never,
        done_tokens_BKN=blank_BKN,
        done_length_BK=jnp.zeros((B, K), jnp.int32),
        cache=jax.tree.map(lambda leaf: jnp.repeat(leaf, K, axis=0), own),
    )

    def unfinished(state):
        return (state.n < steps) & jnp.isfinite(state.logp_BK).any()

    def step(state):
        logits_B1V, cache = extend(state.last_BK.reshape(B * K, 1), common | state.cache)
        n, logits_BKV = state.n + 1, logits_B1V.reshape(B, K, -1).astype(dtype)
        # The K best of a row are among the K best of each beam, so that few logits become log-probabilities.
        best_BKJ, token_BKJ = jax.lax.top_k(logits_BKV, min(K, logits_BKV.shape[-1]))
        step_logp_BKJ = best_BKJ - jax.nn.logsumexp(logits_BKV, axis=-1, keepdims=True)
        logp_BJ = (state.logp_BK[:, :, None] + step_logp_BKJ).reshape(B, -1)
        logp_BK, chosen_BK = jax.lax.top_k(logp_BJ, K)
        beams_left_B = K - jnp.isfinite(state.done_score_BK).sum(1)
        logp_BK = jnp.where(jnp.arange(K)[None] < beams_left_B[:, None], logp_BK, -jnp.inf)
        parent_BK = chosen_BK // token_BKJ.shape[-1]
        last_BK = jnp.take_along_axis(token_BKJ.reshape(B, -1), chosen_BK, axis=1).astype(jnp.int32)
        tokens_BKN = jnp.take_along_axis(state.tokens_BKN, parent_BK[:, :, None], axis=1).at[:, :, state.n].set(last_BK)
        ended_BK = last_BK == end
        ended_score_BK = jnp.where(ended_BK, logp_BK / penalty(n, alpha, dtype), -jnp.inf)
        done = _best(
            K,
            (state.done_score_BK, ended_score_BK),
            (state.done_tokens_BKN, tokens_BKN),
            (state.done_length_BK, jnp.full((B, K), n)),
        )
        # The longest text has the greatest penalty, and no token adds to the log-probability.
        reachable_BK = logp_BK / penalty(jnp.asarray(steps), alpha, dtype)
        logp_BK = jnp.where(ended_BK | (reachable_BK < done[0][:, :1]), -jnp.inf, logp_BK)
        rows = (jnp.arange(B)[:, None] * K + parent_BK).reshape(-1)
        moved = jax.tree.map(lambda leaf: leaf[rows], {name: cache[name] for name in own})
        return _State(n, last_BK, logp_BK, tokens_BKN, *done, moved)

    state = jax.lax.while_loop(unfinished, step, state)
    scores_BK, tokens_BKN, lengths_BK = _best(
        K,
        (state.done_score_BK, state.logp_BK / penalty(state.n, alpha, dtype)),
        (state.done_tokens_BKN, state.tokens_BKN),
        (state.done_length_BK, jnp.full((B, K), state.n)),
    )
    return tokens_BKN, lengths_BK, scores_BK


def penalty(n, alpha, dtype=jnp.float32):
    """((5 + n) / 6)^alpha of a text of n tokens (Wu et al. 2016)."""
    return ((5 + n.astype(dtype)) / 6) ** jnp.asarray(alpha, dtype)


def _best(k, scores, tokens, lengths):
    """The k best by score of pairs of arrays: (scores_BK, tokens_BKN, lengths_BK)."""
    scores_BK, kept_BK = jax.lax.top_k(jnp.concatenate(scores, 1), k)
    tokens_BKN = jnp.take_along_axis(jnp.concatenate(tokens, 1), kept_BK[:, :, None], axis=1)
    return scores_BK, tokens_BKN, jnp.take_along_axis(jnp.concatenate(lengths, 1), kept_BK, axis=1)
