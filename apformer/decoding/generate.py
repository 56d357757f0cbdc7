"""Generation: one token after the other, each drawn from what the model says of those before it.

    x_{t+1} ~ p(. | x_0 .. x_t)

The prompt is read at once (prefill), then every step feeds the last token alone, and a cache stands for all before
it. Samplers choose from the logits of one step:

- greedy       the most likely token
- temperature  softmax(z / t)
- top-k        the same among the k most likely tokens (Fan et al. 2018)
- top-p        the same among the fewest most likely tokens that hold a share p of it all (Holtzman et al. 2020)

A sampler is a function (key, logits_BV) -> tokens_B. Row b draws with fold_in(key, b), so that the rows beside it
change nothing.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def greedy(key, logits_BV):
    """The most likely token of each row, the lowest id among equals; needs no key."""
    return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)


def temperature(t):
    """A sampler from softmax(logits / t): t below 1 sharpens it. Raises ValueError unless 0 < t < inf."""
    _check_temperature(t)
    return lambda key, logits_BV: _categorical(key, _at_temperature(logits_BV, t))


def top_k(k, temperature=1.0):
    """A sampler from the k most likely tokens, the lowest ids among equals. Raises ValueError unless k >= 1."""
    if k < 1:
        raise ValueError(f"top-k {k} keeps no token: use at least 1")
    _check_temperature(temperature)

    def sample(key, logits_BV):
        kept_BK, ids_BK = jax.lax.top_k(_at_temperature(logits_BV, temperature), min(k, logits_BV.shape[-1]))
        return _pick(ids_BK, _categorical(key, kept_BK))

    return sample


def top_p(p, temperature=1.0):
    """A sampler from the fewest most likely tokens that hold a share p. Raises ValueError unless 0 < p <= 1."""
    if not 0 < p <= 1:
        raise ValueError(f"top-p {p} is no share: use more than 0 and at most 1")
    _check_temperature(temperature)

    def sample(key, logits_BV):
        sorted_BV, ids_BV = jax.lax.top_k(_at_temperature(logits_BV, temperature), logits_BV.shape[-1])
        p_BV = jax.nn.softmax(sorted_BV, axis=-1)
        before_BV = jnp.cumsum(p_BV, axis=-1) - p_BV
        kept_BV = (before_BV < p) | (p == 1)  # rounding may bring the sum to 1 too early
        return _pick(ids_BV, _categorical(key, jnp.where(kept_BV, sorted_BV, -jnp.inf)))

    return sample


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


def _check_temperature(t):
    if not 0 < t < math.inf:
        raise ValueError(f"temperature {t} is not a positive number: for the most likely token use greedy")


def _at_temperature(logits_BV, t):
    return logits_BV.astype(jnp.promote_types(logits_BV.dtype, jnp.float32)) / t


def _categorical(key, logits_BV):
    if key is None:
        raise ValueError("sampling needs a key: give one, or use greedy")
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(logits_BV.shape[0]))
    return jax.vmap(jax.random.categorical)(keys_B, logits_BV)


def _pick(ids_BK, choice_B):
    return jnp.take_along_axis(ids_BK, choice_B[:, None], axis=1)[:, 0]
