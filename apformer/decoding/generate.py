"""Generation: one token after the other, each drawn from what the model says of those before it.

    x_{t+1} ~ p(. | x_0 .. x_t)

The prompt is read at once (prefill), then every step feeds the last token alone, and a cache stands for all before
it. A sampler chooses from the logits z of one step. Its filters apply in this order, which is that of `transformers`,
and each sees only what those before it have kept:

1. temperature  softmax(z / t), computed as softmax((z - max z) / t)
2. top-k        the k most likely tokens (Fan et al. 2018)
3. top-p        the fewest most likely tokens that hold a share p of what is kept (Holtzman et al. 2020)
4. min-p        the tokens at least p times as likely as the most likely one (Nguyen et al. 2024)

A sampler is a function (key, logits_BV) -> tokens_B. Row b draws with fold_in(key, b), so that the rows beside it
change nothing. A repetition penalty belongs to the model, see `repetition.py`: it comes before all these.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def greedy(key, logits_BV):
    """The most likely token of each row, the lowest id among equals; needs no key."""
    return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)


def sampler(temperature=1.0, top_k=None, top_p=1.0, min_p=0.0):
    """A sampler from softmax(logits / temperature) after the filters; temperature below 1 sharpens it.

    Raises ValueError unless 0 < temperature < inf, top_k >= 1 or None, 0 < top_p <= 1 and 0 <= min_p <= 1.
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature {temperature} is not a positive number: for the most likely token use greedy")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top-k {top_k} keeps no token: use at least 1")
    if not 0 < top_p <= 1:
        raise ValueError(f"top-p {top_p} is no share: use more than 0 and at most 1")
    if not 0 <= min_p <= 1:
        raise ValueError(f"min-p {min_p} is no share: use 0 to 1")

    def sample(key, logits_BV):
        kept_BJ, ids_BJ = candidates(logits_BV, temperature, top_k, top_p, min_p)
        return jnp.take_along_axis(ids_BJ, _categorical(key, kept_BJ)[:, None], axis=1)[:, 0]

    return sample


def candidates(logits_BV, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0):
    """(kept_BJ, ids_BJ): logits / temperature, less the largest, of the tokens with these ids.

    -inf stands for a token that a filter has removed. Of equals, top-k and top-p keep the lowest ids.
    """
    kept_BJ, count = _at_temperature(logits_BV, temperature), logits_BV.shape[-1]
    ids_BJ = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), logits_BV.shape)
    if top_k is not None or top_p < 1:  # the most likely first, which takes long in a large vocabulary
        kept_BJ, ids_BJ = jax.lax.top_k(kept_BJ, min(top_k or count, count))
    if top_p < 1:  # at 1 rounding might bring the sum there too early
        p_BJ = jax.nn.softmax(kept_BJ, axis=-1)
        before_BJ = jnp.cumsum(p_BJ, axis=-1) - p_BJ
        kept_BJ = jnp.where(before_BJ < top_p, kept_BJ, -jnp.inf)
    if min_p > 0:
        kept_BJ = jnp.where(kept_BJ >= math.log(min_p), kept_BJ, -jnp.inf)
    return kept_BJ, ids_BJ


def generate(extend, cache, prompt_BT, lengths_B, steps, *, key=None, sample=greedy):
    """The next `steps` tokens of every row: tokens_BN, int32.

    extend(tokens_BT, cache, lengths_B=...) -> (logits_BTV, cache) has its parameters bound; the cache has room for
    T + steps tokens. Prompts are right-padded, lengths_B >= 1 says how long they are. Step n draws with
    fold_in(key, n). Pure; steps and sample are static under jit. Raises ValueError for fewer than 1 step.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps generate nothing: use at least 1")
    first_B, cache = begin(extend, cache, prompt_BT, lengths_B, key=key, sample=sample)
    _, rest_BN = proceed(extend, (first_B, cache), 1, steps - 1, key=key, sample=sample)
    return jnp.concatenate([first_B[:, None], rest_BN], axis=1)


def begin(extend, cache, prompt_BT, lengths_B, number=0, *, key=None, sample=greedy):
    """(tokens_B, cache): the token after each prompt, drawn as `number`, and the cache, which it is not in yet."""
    logits_BTV, cache = extend(prompt_BT, cache, lengths_B=lengths_B)
    last_BV = jnp.take_along_axis(logits_BTV, lengths_B[:, None, None] - 1, axis=1)[:, 0]
    return _choose(key, number, last_BV, sample), cache


def proceed(extend, state, number, steps, *, key=None, sample=greedy):
    """(state, tokens_BN): the `steps` tokens after those of a state (tokens_B, cache), drawn as number, number + 1."""

    def step(state, n):
        tokens_B, cache = state
        logits_B1V, cache = extend(tokens_B[:, None], cache)
        tokens_B = _choose(key, n, logits_B1V[:, 0], sample)
        return (tokens_B, cache), tokens_B

    state, tokens_NB = jax.lax.scan(step, state, number + jnp.arange(steps))
    return state, tokens_NB.T


def _choose(key, number, logits_BV, sample):
    return sample(None if key is None else jax.random.fold_in(key, number), logits_BV).astype(jnp.int32)


def pad_prompts(prompts, multiple=16):
    """Prompts side by side, right-padded with token 0: (prompt_BT, lengths_B), int32 numpy arrays.

    The width T is the first of multiple * 1, 2, 4, 8 ... that holds the longest, so that prompts of many lengths share
    few compilations. Raises ValueError for no prompt, or one without a token.
    """
    lengths_B = np.array([len(prompt) for prompt in prompts], np.int32)
    if not lengths_B.size or not lengths_B.all():
        raise ValueError("generation starts from at least one prompt, and every prompt from at least one token")
    width = multiple
    while width < lengths_B.max():
        width *= 2
    prompt_BT = np.zeros((len(prompts), width), np.int32)
    for row_T, prompt in zip(prompt_BT, prompts, strict=True):
        row_T[: len(prompt)] = prompt
    return prompt_BT, lengths_B


def _at_temperature(logits_BV, t):
    """(logits - largest) / t: the likeliest is 0 at every t, and the others are at worst -inf."""
    logits_BV = logits_BV.astype(np.promote_types(logits_BV.dtype, np.float32))
    smallest = float(jnp.finfo(logits_BV.dtype).tiny)  # a device takes smaller numbers for 0
    return (logits_BV - logits_BV.max(-1, keepdims=True)) / max(t, smallest)


def _categorical(key, logits_BV):
    if key is None:
        raise ValueError("sampling needs a key: give one, or use greedy")
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(logits_BV.shape[0]))
    return jax.vmap(jax.random.categorical)(keys_B, logits_BV)
