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
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Sampler = Callable[[jax.Array | None, jax.Array], jax.Array]
State = tuple[jax.Array, Any]
"""The newest token of each row, and the cache, which it is not in yet."""


def greedy(key: jax.Array | None, logits_BV: jax.Array) -> jax.Array:
    """Return the most likely token of each row, the lowest id among equals; needs no key."""
    return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)


def sampler(temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0) -> Sampler:
    """Return a sampler from softmax(logits / temperature) after the filters; temperature below 1 sharpens it.

    Raises ValueError unless 0 < temperature < inf, top_k >= 1 or None, 0 < top_p <= 1 and 0 <= min_p <= 1.
    """
    for name, value, fits, remedy in (
        ("temperature", temperature, 0 < temperature < math.inf, "a number above 0; greedy is for 0"),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1"),
        ("top_p", top_p, 0 < top_p <= 1, "more than 0 and at most 1"),
        ("min_p", min_p, 0 <= min_p <= 1, "0 to 1"),
    ):
        if not fits:
            raise ValueError(f"{name} {value} is out of range: give {remedy}")

    def sample(key: jax.Array | None, logits_BV: jax.Array) -> jax.Array:
        kept_BJ, ids_BJ = candidates(logits_BV, temperature, top_k, top_p, min_p)
        if key is None:
            raise ValueError("sampling needs a key: give one, or use greedy")
        keys_B = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(kept_BJ)))
        drawn_B = jax.vmap(jax.random.categorical)(keys_B, kept_BJ)
        return jnp.take_along_axis(ids_BJ, drawn_B[:, None], axis=1)[:, 0]

    return sample


def candidates(
    logits_BV: jax.Array, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Return (kept_BJ, ids_BJ): logits / temperature, less the largest, of the tokens with these ids.

    -inf stands for a token that a filter has removed. Of equals, top-k and top-p keep the lowest ids.
    """
    logits_BV, count = logits_BV.astype(np.promote_types(logits_BV.dtype, np.float32)), logits_BV.shape[-1]
    smallest = float(jnp.finfo(logits_BV.dtype).tiny)  # a device takes smaller numbers for 0
    # The likeliest is 0 at every temperature, and the others are at worst -inf.
    kept_BJ = (logits_BV - logits_BV.max(-1, keepdims=True)) / max(temperature, smallest)
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


def generate(
    extend: Callable,
    cache: Any,
    prompt_BT: jax.Array,
    lengths_B: jax.Array,
    steps: int,
    *,
    key: jax.Array | None = None,
    sample: Sampler = greedy,
) -> jax.Array:
    """Return the next `steps` tokens of every row: tokens_BN, int32.

    Pure; steps and sample are static under jit.

    Args:
        extend: extend(tokens_BT, cache, lengths_B=...) -> (logits_BTV, cache), with its parameters bound.
        cache: An empty cache, with room for T + steps tokens.
        prompt_BT: Right-padded prompts.
        lengths_B: Length of each prompt, at least 1.
        steps: Number of tokens.
        key: Key of the draws: step n draws with fold_in(key, n).
        sample: Chooses from the logits of a step.

    Raises:
        ValueError: For fewer than 1 step.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps generate nothing: use at least 1")
    state = begin(extend, cache, prompt_BT, lengths_B, key=key, sample=sample)
    _, rest_BN = proceed(extend, state, 1, steps - 1, key=key, sample=sample)
    return jnp.concatenate([state[0][:, None], rest_BN], axis=1)


def begin(
    extend: Callable,
    cache: Any,
    prompt_BT: jax.Array,
    lengths_B: jax.Array,
    number: int = 0,
    *,
    key: jax.Array | None = None,
    sample: Sampler = greedy,
) -> State:
    """Read the prompts, and draw the token after each as `number`."""
    logits_BTV, cache = extend(prompt_BT, cache, lengths_B=lengths_B)
    last_BV = jnp.take_along_axis(logits_BTV, lengths_B[:, None, None] - 1, axis=1)[:, 0]
    return _choose(key, number, last_BV, sample), cache


def proceed(
    extend: Callable,
    state: State,
    number: int | jax.Array,
    steps: int,
    *,
    key: jax.Array | None = None,
    sample: Sampler = greedy,
) -> tuple[State, jax.Array]:
    """Return (state, tokens_BN): the `steps` tokens after those of a state, drawn as number, number + 1."""

    def step(state: State, n: jax.Array) -> tuple[State, jax.Array]:
        tokens_B, cache = state
        logits_B1V, cache = extend(tokens_B[:, None], cache)
        tokens_B = _choose(key, n, logits_B1V[:, 0], sample)
        return (tokens_B, cache), tokens_B

    state, tokens_NB = jax.lax.scan(step, state, number + jnp.arange(steps))
    return state, tokens_NB.T


def _choose(key: jax.Array | None, number: int | jax.Array, logits_BV: jax.Array, sample: Sampler) -> jax.Array:
    return sample(None if key is None else jax.random.fold_in(key, number), logits_BV).astype(jnp.int32)


def pad_prompts(prompts: Sequence[Any], multiple: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts side by side, right-padded with token 0: (prompt_BT, lengths_B), int32.

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
