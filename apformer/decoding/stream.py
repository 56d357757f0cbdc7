"""Write text in chunks, which are shown as they come.

Learned positions end at max_len: when they are used up, the last of what was written, half as much, becomes the
prompt of a new beginning."""

from functools import partial

import jax
import numpy as np

from apformer.decoding import generate as generation

CHUNK = 16  # tokens that are drawn before they are shown


def write(prompt_T, tokens, samples, most, model, *, key, sample):
    """Chunks of the next tokens, (samples, CHUNK) or fewer, as they are drawn; `most` positions there are, or None."""
    extend, most = model.extend, most or len(prompt_T) + tokens
    begin = jax.jit(partial(generation.begin, extend, key=key, sample=sample))
    proceed = jax.jit(partial(generation.proceed, extend, key=key, sample=sample), static_argnums=2, donate_argnums=0)
    written_BT = np.tile(np.asarray(prompt_T, np.int32), (samples, 1))
    context_BT, number = written_BT[:, -most:], 0
    while number < tokens:
        until = min(tokens, number + most - context_BT.shape[1] + 1)  # the last token needs no position
        padded_BT, lengths_B = generation.pad_prompts(list(context_BT))
        state = begin(model.init_cache(samples, most), padded_BT[:, :most], lengths_B, number)
        chunk_BN = np.asarray(state[0])[:, None]
        while True:
            written_BT = np.concatenate([written_BT, chunk_BN], axis=1)
            yield chunk_BN
            number += chunk_BN.shape[1]
            if number == until:
                break
            state, chunk_BN = proceed(state, number, min(CHUNK, until - number))
            chunk_BN = np.asarray(chunk_BN)
        context_BT = written_BT[:, -max(1, most // 2) :]
