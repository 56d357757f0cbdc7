"""The translation of each of many sentences, by beam search or by drawing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer import seq2seq
from apformer.decoding import beam, generate

BATCH_TOKENS = 1024  # of the sources of a batch, padded
MULTIPLE = 8  # of which the padded widths are


def search(sources, params, settings, teaching, temperature=0.0, seed=0, progress=lambda done: None):
    """The translation of each source, tokens without the end: the best that the search finds, or one that is drawn.

    sources: int32 arrays, each with the end token. A translation has at most 16 tokens and twice those of its source.
    """
    cfg, most = settings.model, settings.data.longest
    decode = jax.jit(partial(_decode, cfg=cfg, temperature=temperature), static_argnames=("steps", "beams", "alpha"))
    width_N = np.array([-(-len(source) // MULTIPLE) * MULTIPLE for source in sources])
    found, end, key = [None] * len(sources), cfg.target_vocab_size - 1, jax.random.key(seed)
    for width in np.unique(width_N):  # like lengths together: few compilations, little padding
        alike, size = np.flatnonzero(width_N == width), max(1, BATCH_TOKENS // int(width))
        size, steps = min(size, len(alike)), min(16 + 2 * int(width), most)
        for start in range(0, len(alike), size):
            rows = alike[start : start + size]
            source_BS, lengths_B = generate.pad_prompts([sources[n] for n in np.resize(rows, size)], int(width))
            tokens_BN = decode(
                params,
                source_BS,
                lengths_B,
                jax.random.fold_in(key, int(rows[0])),
                steps=steps,
                beams=teaching.beams,
                alpha=teaching.alpha,
            )
            for n, tokens_N in zip(rows, np.asarray(tokens_BN), strict=False):
                ends = np.flatnonzero(tokens_N == end)
                found[n] = tokens_N[: ends[0] if len(ends) else None]
            progress(len(rows))
    return found


def _decode(params, source_BS, lengths_B, key, *, cfg, temperature, steps, beams, alpha):
    """tokens_BN, each with the end token unless it was cut off."""
    with jax.default_matmul_precision("highest"):
        cache = seq2seq.init_cache(params, source_BS, cfg, steps, lengths_B)
        listed = params | {"decoder": seq2seq.unstack(params["decoder"])}  # not cut out of a stack at every step

        def extend(tokens_BT, cache, lengths_B=None):
            return seq2seq.extend(listed, tokens_BT, cache, cfg, lengths_B=lengths_B)

        end_B = jnp.full(len(source_BS), cfg.target_vocab_size - 1, jnp.int32)
        if temperature:
            draw = generate.temperature(temperature)
            return generate.generate(extend, cache, end_B[:, None], jnp.ones_like(end_B), steps, key=key, sample=draw)
        shared = ("source", "source_mask")
        return beam.search(extend, cache, end_B, end_B[0], steps, beams=beams, alpha=alpha, shared=shared)[0][:, 0]
