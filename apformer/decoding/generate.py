"""Generation: draw one token after the other from the model's distribution of the next one.

    x_{t+1} ~ p(. | x_0 .. x_t)

Prefill reads all of a prompt but its last token at once. Then every step feeds the newest token alone; the cache holds
all tokens before it. A step transforms its logits z in this order, which is that of `transformers`; each filter applies
to the tokens that the filters before it have kept:

1. repetition penalty  z_v / penalty where z_v > 0, else z_v * penalty, for tokens v of the row (Keskar et al. 2019)
2. temperature         softmax(z / t); with 0, the most likely token alone
3. top-k               the k most likely tokens (Fan et al. 2018)
4. top-p               the fewest most likely tokens whose probabilities sum to p or more (Holtzman et al. 2020)
5. min-p               the tokens at least p times as likely as the most likely one (Nguyen et al. 2024)

All of these are arguments of the compiled program, one for each row, so other values compile nothing. Each row has its
own key, so its tokens do not depend on the other rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from apformer.errors import UserError

State = tuple[Array, Any]
"""The newest token of each row, and the cache of all tokens before it."""


class Sampling(NamedTuple):
    """Parameters of the draw of a token, each one number or one for each row. The defaults change nothing.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely token.
        top_k: Number of most likely tokens to draw from; 0 for all.
        top_p: Draw from the fewest most likely tokens whose probabilities sum to this or more, 0 to 1.
        min_p: Least probability of a token, as a share of the largest, 0 to 1.
        repetition_penalty: Divides the logits above 0 of tokens that the row has, and multiplies those below 0.
    """

    temperature: Any = 1.0
    top_k: Any = 0
    top_p: Any = 1.0
    min_p: Any = 0.0
    repetition_penalty: Any = 1.0


def sampling_of(rows: int, sampling: Sampling) -> Sampling:
    """Return a Sampling of arrays of `rows` numbers. Raises UserError (exit USAGE) that names one out of range."""
    fields = []
    for name, dtype, least, most in (
        ("temperature", np.float32, 0, 1e30),
        ("top_k", np.int32, 0, 2**31 - 1),
        ("top_p", np.float32, 0, 1),
        ("min_p", np.float32, 0, 1),
        ("repetition_penalty", np.float32, 0.01, 100),
    ):
        values = np.asarray(getattr(sampling, name))
        if values.shape not in ((), (rows,)) or values.dtype.kind in "OU":
            raise UserError(f"{name} has the shape {values.shape} and type {values.dtype}: give one number, or {rows}")
        if not ((least <= values) & (values <= most)).all() or not np.allclose(values.astype(dtype), values):
            raise UserError(f"{name} {values} is out of range: give {least} to {most}")
        fields.append(np.broadcast_to(values.astype(dtype), rows))
    return Sampling(*fields)


def scores(logits_BV: Array, sampling: Sampling, seen_BV: Array | None = None) -> Array:
    """Return the logits to draw from: less the largest, divided by the temperature, -inf if filtered out.

    Of equal logits, top-k and top-p keep the lowest ids. Temperature 0 counts as the smallest positive number.

    Args:
        logits_BV: Logits of a step.
        sampling: Parameters of the draw.
        seen_BV: Mask of the tokens that occur in a row, for the repetition penalty.
    """
    dtype = np.promote_types(logits_BV.dtype, np.float32)
    tiny = float(jnp.finfo(dtype).tiny)  # devices flush smaller numbers to 0
    temperature, k, top_p, min_p, penalty = (jnp.asarray(x, dtype).reshape(-1, 1) for x in sampling)
    z_BV = logits_BV.astype(dtype)
    if seen_BV is not None:
        z_BV = jnp.where(seen_BV, jnp.where(z_BV > 0, z_BV / penalty, z_BV * penalty), z_BV)
    # The largest is 0 at every temperature, and the others at worst -inf: no overflow to inf.
    z_BV = (z_BV - z_BV.max(-1, keepdims=True)) / jnp.maximum(temperature, tiny)
    most = jnp.where(k == 0, jnp.inf, k)
    share = jnp.where(top_p < 1, jnp.maximum(top_p, tiny), jnp.inf)  # a rounded sum could reach 1 too early

    def cut(z_BV: Array) -> Array:
        z_BV = jnp.where(_likeliest(z_BV, jnp.ones_like(z_BV), most), z_BV, -jnp.inf)
        return jnp.where(_likeliest(z_BV, jax.nn.softmax(z_BV), share), z_BV, -jnp.inf)

    cuts = jnp.isfinite(most).any() | jnp.isfinite(share).any()
    z_BV = jax.lax.cond(cuts, cut, lambda z_BV: z_BV, z_BV)
    return jnp.where(z_BV >= jnp.log(min_p), z_BV, -jnp.inf)


def _likeliest(z_BV: Array, weight_BV: Array, needed: Array) -> Array:
    """Return the mask of the fewest most likely tokens whose weights sum to `needed`; of equals, the lowest ids.

    z is at most 0. The bits of -z, read as an integer, are in its order. So a search from the highest bit to the lowest
    finds the last value to take, without sorting.
    """
    bits = jnp.finfo(z_BV.dtype).bits
    u_BV = jax.lax.bitcast_convert_type(jnp.abs(z_BV), jnp.dtype(f"uint{bits}"))

    def lower(i: Array, last_B1: Array) -> Array:
        bit = jnp.asarray(1, u_BV.dtype) << (bits - 2 - i).astype(u_BV.dtype)
        sum_B1 = jnp.where(u_BV < last_B1 + bit, weight_BV, 0).sum(-1, keepdims=True)
        return jnp.where(sum_B1 < needed, last_B1 + bit, last_B1)

    last_B1 = jax.lax.fori_loop(0, bits - 1, lower, jnp.zeros_like(u_BV[:, :1]))
    equal_BV = jnp.where(u_BV == last_B1, weight_BV, 0)
    before_BV = jnp.where(u_BV < last_B1, weight_BV, 0).sum(-1, keepdims=True) + equal_BV.cumsum(-1) - equal_BV
    return (u_BV < last_B1) | ((u_BV == last_B1) & (before_BV < needed))


def choose(
    logits_BV: Array,
    sampling: Sampling | None = None,
    keys_B: Array | None = None,
    seen_BV: Array | None = None,
) -> Array:
    """Return a token for each row, int32; without a Sampling the most likely one, the lowest id among equals."""
    if sampling is None:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    if keys_B is None:
        raise ValueError("sampling needs a key: give one, or no sampling for the most likely tokens")
    z_BV = scores(logits_BV, sampling, seen_BV)
    noise_BV = jax.vmap(lambda key: jax.random.gumbel(key, z_BV.shape[1:], z_BV.dtype))(keys_B)
    noise_BV = jnp.where(jnp.asarray(sampling.temperature).reshape(-1, 1) > 0, noise_BV, 0)
    return jnp.argmax(z_BV + noise_BV, axis=-1).astype(jnp.int32)


def generate(
    extend: Callable,
    cache: Any,
    prompt_BT: Array | np.ndarray,
    lengths_B: Array | np.ndarray,
    steps: int,
    *,
    key: Array | None = None,
    sampling: Sampling | None = None,
) -> Array:
    """Return the next `steps` tokens of every row: tokens_BN, int32.

    Pure; steps is static under jit.

    Args:
        extend: extend(tokens_BT, cache, lengths_B=...) -> (logits_BTV, cache), with its parameters bound.
        cache: An empty cache, with room for T + steps tokens.
        prompt_BT: Right-padded prompts.
        lengths_B: Length of each prompt, at least 1.
        steps: Number of tokens.
        key: Key of the draws: step n of row b draws with fold_in(fold_in(key, b), n).
        sampling: Parameters of the draw, of which the repetition penalty is ignored; None for the most likely tokens.

    Raises:
        ValueError: For fewer than 1 step, or a Sampling without a key.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps generate nothing: use at least 1")
    state = begin(extend, cache, jnp.asarray(prompt_BT), jnp.asarray(lengths_B))
    keys_B = None if key is None else jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(prompt_BT)))
    return proceed(extend, state, 0, steps, sampling=sampling, keys_B=keys_B)[1]


def begin(extend: Callable, cache: Any, prompt_BT: Array, lengths_B: Array) -> State:
    """Prefill prompts: return their last tokens, and a cache of all tokens before them."""
    if prompt_BT.shape[1] > 1:
        _, cache = extend(prompt_BT, cache, lengths_B=lengths_B - 1)
    return jnp.take_along_axis(prompt_BT, lengths_B[:, None] - 1, axis=1)[:, 0].astype(jnp.int32), cache


def proceed(
    extend: Callable,
    state: State,
    number: int | Array,
    steps: int,
    *,
    sampling: Sampling | None = None,
    keys_B: Array | None = None,
) -> tuple[State, Array]:
    """Draw `steps` tokens after a state, with the keys of steps number, number + 1 ...: (state, tokens_BN)."""

    def step(state: State, n: Array) -> tuple[State, Array]:
        tokens_B, cache = state
        logits_B1V, cache = extend(tokens_B[:, None], cache)
        tokens_B = choose(logits_B1V[:, 0], sampling, None if keys_B is None else numbered(keys_B, n))
        return (tokens_B, cache), tokens_B

    state, tokens_NB = jax.lax.scan(step, state, number + jnp.arange(steps))
    return state, tokens_NB.T


def numbered(keys_B: Array, n: Array) -> Array:
    """Return the keys of the rows for step n."""
    return jax.vmap(jax.random.fold_in, (0, None))(keys_B, n)


def pad_prompts(prompts: Sequence[Any], multiple: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Right-pad prompts with token 0: return (prompt_BT, lengths_B), int32.

    The width T is the first of multiple * 1, 2, 4, 8 ... that holds the longest prompt, so that few shapes are
    compiled. Raises ValueError for no prompt, or one without a token.
    """
    if not min(map(len, prompts), default=0):
        raise ValueError("generation starts from at least one prompt, and every prompt from at least one token")
    width = multiple
    while width < max(map(len, prompts)):
        width *= 2
    return right_padded(prompts, width)


def right_padded(rows: Sequence[Any], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of tokens, filled up with token 0, and their lengths: (B, width) and (B,), int32."""
    tokens_BT = np.zeros((len(rows), width), np.int32)
    for row_T, row in zip(tokens_BT, rows, strict=True):
        row_T[: len(row)] = row
    return tokens_BT, np.array([*map(len, rows)], np.int32)
