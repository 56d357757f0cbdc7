"""Continue rows of any length greedily, in pieces, with a cache of a given size.

Each compiled program has the shape of a piece. So memory is limited to the cache and a piece, and few programs are
compiled, whatever the lengths are. If queries see keys only at a few offsets, the cache may be far smaller than a row
(apformer/layers/cache.py): numbers of 100,000 digits need the keys of 100,001 tokens.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.decoding import generate

PIECE = 1024  # tokens


def proceed(
    model: Any, prompts: Sequence, count: int, slots: int, progress: Callable[[int], Any] = lambda tokens: None
) -> np.ndarray:
    """Return the next `count` tokens of each row, int32 (B, count).

    Args:
        model: decoding.bind.Model.
        prompts: Rows of tokens.
        count: Number of tokens to write.
        slots: Slots of the cache: 16 or more, and as many as a row has tokens, or as the farthest key and a piece need.
        progress: Called with the number of tokens of each row that were read or written since the last call.
    """
    prompt_BT, lengths_B = generate.pad_prompts(prompts)
    B, T = prompt_BT.shape
    size = min(T, PIECE)
    cache, next_B = model.init_cache(B, slots), jnp.zeros(B, jnp.int32)
    for start in range(0, T, size):
        new_B = np.clip(lengths_B - start, 0, size)
        next_B, cache = _read(prompt_BT[:, start : start + size], new_B, next_B, cache, model)
        progress(int(new_B.max()))
    parts, steps = [np.asarray(next_B)[:, None]], power_of_two(min(count, PIECE))
    state = next_B, cache
    while (done := 1 + steps * (len(parts) - 1)) < count:
        state, tokens_BN = _write(state, steps, model)
        parts.append(np.asarray(tokens_BN))
        progress(min(steps, count - done))
    return np.concatenate(parts, axis=1)[:, :count]


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least this number."""
    return 1 << max(0, number - 1).bit_length()


@partial(jax.jit, donate_argnames="cache")
def _read(tokens_BT: jax.Array, lengths_B: jax.Array, next_B: jax.Array, cache: dict, model: Any) -> tuple:
    """Return (next token of each row, cache) after reading tokens; a row may have none of them."""
    logits_BTV, cache = model.extend(tokens_BT, cache, lengths_B=lengths_B)
    last_B11 = jnp.maximum(lengths_B - 1, 0)[:, None, None]
    last_BV = jnp.take_along_axis(logits_BTV, last_B11, axis=1)[:, 0]
    return jnp.where(lengths_B > 0, generate.choose(last_BV), next_B), cache


@partial(jax.jit, static_argnames="steps", donate_argnames="state")
def _write(state: tuple, steps: int, model: Any) -> tuple:
    return generate.proceed(model.extend, state, 0, steps)
