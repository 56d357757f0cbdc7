"""Write text in chunks, which are shown as they come.

Learned positions end at max_len: when they are used up, the last of what was written, half as much, becomes the
prompt of a new beginning."""

import jax
import numpy as np

from apformer.decoding import generate as generation

CHUNK = 16  # tokens that are drawn before they are shown

_begin = jax.jit(generation.begin, static_argnames="sample")
_proceed = jax.jit(generation.proceed, static_argnums=3, static_argnames="sample", donate_argnums=1)


def write(prompt_T, tokens, samples, most, model, *, key, sample):
    """Chunks of the next tokens, (samples, CHUNK) or fewer, as they are drawn; `most` positions there are, or None."""
    extend, most = model.extend, most or len(prompt_T) + tokens
    written_BT = np.tile(np.asarray(prompt_T, np.int32), (samples, 1))
    context_BT, number = written_BT[:, -most:], 0
    while number < tokens:
        until = min(tokens, number + most - context_BT.shape[1] + 1)  # the last token needs no position
        padded_BT, lengths_B = generation.pad_prompts(list(context_BT))
        cache = model.init_cache(samples, most)
        state = _begin(extend, cache, padded_BT[:, :most], lengths_B, number, key=key, sample=sample)
        chunk_BN = np.asarray(state[0])[:, None]
        while True:
            written_BT = np.concatenate([written_BT, chunk_BN], axis=1)
            yield chunk_BN
            number += chunk_BN.shape[1]
            if number == until:
                break
            state, chunk_BN = _proceed(extend, state, number, min(CHUNK, until - number), key=key, sample=sample)
            chunk_BN = np.asarray(chunk_BN)
        context_BT = written_BT[:, -max(1, most // 2) :]
