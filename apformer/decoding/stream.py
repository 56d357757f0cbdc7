"""Generate texts in chunks that can be shown at once, up to the end of each text.

One compiled program serves prompts of any length and any number of steps: it reads each row in a loop over parts of
READ tokens, and counts the steps. Only another power of two of rows, or of slots of the cache, compiles another.

Learned positions end at max_len: then a row starts again, with its last max_len / 2 tokens as the prompt.
"""

import codecs
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from itertools import takewhile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from apformer.decoding import generate as generation
from apformer.decoding.bind import Model
from apformer.decoding.generate import Sampling
from apformer.tokenizers.text import Tokenizer

CHUNK = 16  # most tokens of a chunk; the first chunk has one
READ = 32  # tokens of a prompt that are read at a time
ROOM = 2048  # least slots of a cache: those of a row, times the rows or 4
AT_ONCE = 4096  # most slots of a row that are allocated ahead


def write(
    model: Model,
    prompts: Sequence[Sequence[int] | np.ndarray],
    tokens: int,
    most: int | None,
    *,
    sampling: Sampling,
    seed: int = 0,
    drawable: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the `tokens` tokens that follow every prompt, in chunks: arrays (rows, CHUNK) or narrower.

    The draws of a row depend on the seed, on its prompt, and on the number of equal prompts before it. Other rows
    change nothing but rounding.

    Args:
        model: Model with its parameters.
        prompts: Tokens of each row, at least 1.
        tokens: Number of tokens.
        most: Number of positions; None without a bound.
        sampling: Parameters of the draw, a number for each row.
        seed: Seed of the draws.
        drawable: Ids from this number on are never drawn. The default is the vocabulary size.
    """
    rows = len(prompts)
    longest = max(map(len, prompts))
    vocabulary = model.cfg.vocab_size
    width = rows if rows == 1 else max(4, _power_of_two(rows))
    room = _room(max(longest + min(tokens, AT_ONCE), ROOM // max(4, width)), most)
    sampling = Sampling(*(np.resize(x, width) for x in sampling))
    contexts = [[*map(int, prompt)] for prompt in prompts]
    names_BN = np.resize(np.array(_names(contexts, seed), np.uint32), (width, 3))
    contexts = [context[-(most or len(context)) :] for context in contexts]
    new = [True] * rows  # rows that the cache does not hold
    state = None
    number = 0
    while number < tokens:
        prompt_BT, lengths_B = np.zeros((width, room), np.int32), np.full(width, -1, np.int32)
        newest_B, seen_BV = np.zeros(width, np.int32), np.zeros((width, vocabulary), bool)
        for b, context in enumerate(contexts):
            newest_B[b] = context[-1]
            seen_BV[b, context] = True
            if new[b]:
                lengths_B[b] = len(context) - 1
                prompt_BT[b, : len(context) - 1] = context[:-1]
        capacity = min(most or room, room)
        steps = min(CHUNK if number else 1, tokens - number, 1 + capacity - max(map(len, contexts)))
        if state is None:  # zeros; the program writes the cache of each new row
            state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), _shapes(model.init_cache, width, room))
        state, tokens_BN = _advance(
            model.extend, model.init_cache, state, newest_B, seen_BV, prompt_BT, lengths_B, names_BN, sampling,
            np.int32(drawable or vocabulary), np.int32(number), np.int32(steps),
        )  # fmt: skip
        tokens_BN = np.asarray(tokens_BN)[:, :steps]
        yield tokens_BN[:rows]
        number += steps
        for context, tokens_N in zip(contexts, tokens_BN, strict=False):
            context += tokens_N.tolist()
        new = [len(context) > capacity for context in contexts]
        if any(new) and capacity != most:  # a larger cache: read all rows again
            room = _room(2 * room, most)
            state = None
            new = [True] * rows
        else:
            contexts = [row[-max(1, capacity // 2) :] if full else row for row, full in zip(contexts, new, strict=True)]


@partial(jax.jit, donate_argnames="cache")
def _advance(
    extend: Callable,
    init_cache: Callable,
    cache: Any,
    newest_B: Array,
    seen_BV: Array,
    prompt_BT: Array,
    lengths_B: Array,
    names_BN: Array,
    sampling: Sampling,
    drawable: Array,
    number: Array,
    steps: Array,
) -> tuple[Any, Array]:
    """Read the prompt of each row whose length is not -1 into an empty cache, and draw `steps` tokens for every row.

    Returns (cache, tokens_BN); the first `steps` columns are drawn.
    """
    zero = jnp.int32(0)  # a Python int would have 64 bits if these are enabled

    def read(b: Array, cache: Any) -> Any:
        def part(i: Array, row: Any) -> Any:
            tokens_1T = jax.lax.dynamic_slice_in_dim(prompt_BT[b], READ * i, READ)[None]
            return extend(tokens_1T, row, lengths_B=jnp.clip(lengths_B[b] - READ * i, 0, READ)[None])[1]

        def fill(cache: Any) -> Any:
            row = jax.lax.fori_loop(zero, -(-lengths_B[b] // READ), part, init_cache(1, prompt_BT.shape[1]))
            return jax.tree.map(partial(jax.lax.dynamic_update_slice_in_dim, start_index=b, axis=0), cache, row)

        return jax.lax.cond(lengths_B[b] >= 0, fill, lambda cache: cache, cache)

    def step(n: Array, state: tuple) -> tuple:
        newest_B, cache, seen_BV, tokens_BN = state
        logits_B1V, cache = extend(newest_B[:, None], cache)
        logits_BV = jnp.where(jnp.arange(seen_BV.shape[1], dtype=jnp.int32) < drawable, logits_B1V[:, 0], -jnp.inf)
        newest_B = generation.choose(logits_BV, sampling, generation.numbered(keys_B, number + n), seen_BV)
        seen_BV = seen_BV.at[jnp.arange(len(newest_B)), newest_B].set(True)
        return newest_B, cache, seen_BV, tokens_BN.at[:, n].set(newest_B)

    keys_B = jax.vmap(lambda name_N: reduce(jax.random.fold_in, name_N[1:], jax.random.key(name_N[0])))(names_BN)
    cache = jax.lax.fori_loop(0, len(newest_B), read, cache)
    tokens_BN = jnp.zeros((len(newest_B), CHUNK), jnp.int32)
    _, cache, _, tokens_BN = jax.lax.fori_loop(zero, steps, step, (newest_B, cache, seen_BV, tokens_BN))
    return cache, tokens_BN


def _names(prompts: list[list[int]], seed: int) -> list[list[int]]:
    """Return the numbers of each prompt's key: the seed, a checksum, and the number of equal prompts before it."""
    sums = [zlib.crc32(np.array(prompt, np.int64).tobytes()) for prompt in prompts]
    return [[seed, checksum, sums[:b].count(checksum)] for b, checksum in enumerate(sums)]


@cache  # since tracing takes time
def _shapes(init_cache: Callable, rows: int, room: int) -> Any:
    return jax.eval_shape(partial(init_cache, rows, room))


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _room(needed: int, most: int | None) -> int:
    """Return the slots of a row: a power of two, or at most all positions; a multiple of READ."""
    room = _power_of_two(needed)
    return -(-min(room, most or room) // READ) * READ


@dataclass
class Text:
    """Text of a row, decoded as its tokens come. It ends before the first token of `ends` or string of `stops`.

    Characters that may begin a stop are held back until later ones decide.

    Attributes:
        tokenizer: Tokenizer of the tokens.
        ends: Tokens that end the text.
        stops: Strings that end the text, none of them empty.
        ended: Whether the text has ended.
        pending: Characters that are held back.
        decoder: Decoder of UTF-8 that holds back parts of a character.
    """

    tokenizer: Tokenizer
    ends: Collection[int] = ()
    stops: Sequence[str] = ()
    ended: bool = False
    pending: str = ""
    decoder: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))

    def add(self, tokens: Sequence[int] | np.ndarray, last: bool = False) -> str:
        """Return the text that these tokens complete. last: no more tokens follow."""
        if self.ended:
            return ""
        before_end = [*takewhile(lambda token: token not in self.ends, map(int, tokens))]
        last = last or len(before_end) < len(tokens)
        self.pending += self.decoder.decode(b"".join(map(self.tokenizer.bytes_of, before_end)), last)
        matches = [(start + len(stop), start) for stop in self.stops if (start := self.pending.find(stop)) >= 0]
        prefixes = (n for stop in self.stops for n in range(1, len(stop)) if self.pending.endswith(stop[:n]))
        end = min(matches)[1] if matches else len(self.pending) - (0 if last else max(prefixes, default=0))
        complete, self.pending = self.pending[:end], self.pending[end:]
        self.ended = last or bool(matches)
        return complete


def texts(chunks: Iterable[np.ndarray], rows: list[Text], tokens: int) -> Iterator[list[str]]:
    """Yield the text that each chunk of `write` adds to each row, until all rows have ended, or after `tokens`."""
    for chunk_BN in chunks:
        tokens -= chunk_BN.shape[1]
        yield [row.add(tokens_N, not tokens) for row, tokens_N in zip(rows, chunk_BN, strict=True)]
        if all(row.ended for row in rows):
            return
