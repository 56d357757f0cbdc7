"""Continue lines of terms, greedily: many lines at once, in few shapes."""

from functools import partial

import jax
import numpy as np

from apformer.decoding import buckets
from apformer.decoding.generate import generate, pad_prompts
from apformer.report import progress
from apformer.tokenizers import digits as tokenizer

TOKENS = 8192  # of a batch; its attention must fit in memory


def continue_lines(lines, characters, *, extend, init_cache, apply=None):
    """The next characters of each line, greedily, without the space they begin with."""
    if characters == 0:
        return [""] * len(lines)
    tokens = [tokenizer.encode(line) for line in lines]
    width_N = np.array([pad_prompts([prompt])[0].shape[1] for prompt in tokens])
    continuations = [""] * len(tokens)
    step = jax.jit(partial(_continue, characters=characters, extend=extend, init_cache=init_cache))
    with progress.bar(total=len(tokens), unit="line", leave=False, disable=len(tokens) == 1) as bar:
        # Attention grows with the square of a prompt, and only the cache with what is generated.
        for rows, row_B, _ in buckets.batches(width_N + characters // 8, TOKENS):
            prompt_BT, lengths_B = pad_prompts([tokens[i] for i in row_B])
            for i, tokens_N in zip(rows, np.asarray(step(prompt_BT, lengths_B)), strict=False):
                continuations[i] = tokenizer.decode(tokens_N)[1:]
            bar.update(len(rows))
    return continuations


def _continue(prompt_BT, lengths_B, *, characters, extend, init_cache):
    B, T = prompt_BT.shape
    return generate(extend, init_cache(B, T + characters), prompt_BT, lengths_B, characters)


def terms_that_fit(first, difference, terms, digits, more):
    """How many of the next `more` terms of a progression stay within 0 .. 10^D - 1; whole numbers of any size."""
    last = first + (terms - 1) * difference
    room = last if difference < 0 else 10**digits - 1 - last
    return min(more, room // abs(difference)) if difference else more
