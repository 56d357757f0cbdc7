"""Write text in chunks, which are shown as they come, up to its end.

Learned positions end at max_len: then writing starts again, with the last max_len / 2 tokens as the new prompt. A step
reads every slot of the cache, the empty ones too. So a cache begins small, and doubles when it is full."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile, tee
from typing import Any

import jax
import numpy as np

from apformer.decoding import generate as generation
from apformer.decoding.bind import Model
from apformer.tokenizers import text

CHUNK = 16  # tokens that are drawn before they are shown
ROOM = 256  # slots that a cache begins with, or more if the prompt needs them

_begin = jax.jit(generation.begin, static_argnames="sample")
_proceed = jax.jit(generation.proceed, static_argnums=3, static_argnames="sample", donate_argnums=1)


def write(
    prompt_T: Sequence[int] | np.ndarray,
    tokens: int,
    samples: int,
    most: int | None,
    model: Model,
    *,
    key: jax.Array | None,
    sample: generation.Sampler,
) -> Iterator[np.ndarray]:
    """Yield the next tokens as they are drawn, (samples, CHUNK) or fewer; `most` positions there are, or None."""
    extend, most = model.extend, most or len(prompt_T) + tokens
    written_BT = np.tile(np.asarray(prompt_T, np.int32), (samples, 1))
    context_BT, number = written_BT[:, -most:], 0
    while number < tokens:
        held = context_BT.shape[1]
        until = min(tokens, number + most - held + 1)  # the last token needs no position
        padded_BT, lengths_B = generation.pad_prompts(list(context_BT))
        room = min(most, max(ROOM, padded_BT.shape[1]))
        cache = model.init_cache(samples, room)
        state = _begin(extend, cache, padded_BT[:, :most], lengths_B, number, key=key, sample=sample)
        chunk_BN = np.asarray(state[0])[:, None]
        while True:
            written_BT = np.concatenate([written_BT, chunk_BN], axis=1)
            yield chunk_BN
            number += chunk_BN.shape[1]
            if number == until:
                break
            steps = min(CHUNK, until - number)
            if held + steps > room:
                room = min(most, 2 * room)
                state = state[0], _moved(state[1], model.init_cache(samples, room))
            state, chunk_BN = _proceed(extend, state, number, steps, key=key, sample=sample)
            held += steps
            chunk_BN = np.asarray(chunk_BN)
        context_BT = written_BT[:, -max(1, most // 2) :]


@jax.jit
def _moved(cache: Any, larger: Any) -> Any:
    """Return `larger`, an empty cache, with all that `cache` holds: position p stays in slot p."""
    return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice(y, x, [0] * x.ndim), cache, larger)


def texts(
    chunks: Iterable[np.ndarray],
    samples: int,
    tokenizer: text.Characters | text.BytePairs,
    ends: Collection[int] = (),
    stops: Sequence[str] = (),
) -> list[Iterator[str]]:
    """Return the text of each row of `write` in pieces; it ends before a token of `ends` and before a stop.

    No more chunks are drawn than the rows that are read need.
    """

    def of_row(row: int, chunks: Iterable[np.ndarray]) -> Iterator[str]:
        tokens = (int(token) for chunk_BN in chunks for token in chunk_BN[row])
        return before(stops, text.stream(tokenizer, takewhile(lambda token: token not in ends, tokens)))

    return [of_row(row, copy) for row, copy in enumerate(tee(chunks, samples))]


def before(stops: Sequence[str], pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces of a text up to the first of the strings `stops` in it. A stop may lie across pieces.

    What may be the beginning of a stop is held back until it is known. Stops may not be empty.
    """
    held = ""
    for piece in pieces:
        held += piece
        if found := [(start + len(stop), start) for stop in stops if (start := held.find(stop)) >= 0]:
            yield held[: min(found)[1]]
            return
        begun = (n for stop in stops for n in range(1, len(stop)) if held.endswith(stop[:n]))
        sure = len(held) - max(begun, default=0)
        if sure:
            yield held[:sure]
        held = held[sure:]
    if held:
        yield held
