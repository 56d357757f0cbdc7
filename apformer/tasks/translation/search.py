"""The translation of each of many sentences, by beam search or by options."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from apformer import seq2seq
from apformer.decoding import beam, buckets, ensemble, generate, minimum_risk
from apformer.tasks.translation import memory as memories

BATCH_TOKENS = 1024  # of the sources of a batch, padded
MULTIPLE = 8  # sources are read at widths that are multiples of this, so that few programs are compiled


def search(
    sources, params, settings, options, temperature=0.0, seed=0, others=(), memory=None, progress=lambda done: None
):
    """The translation of each source, tokens without the end: the best that the search finds, or one that is drawn.

    sources: int32 arrays, each with the end token. A translation and its end have at most 16 tokens and twice those of
    its padded source, and no more than settings.data.longest.
    options.mbr: the search compares its best beams, that many, and takes the one that agrees most with the others.
    others: (params, Config) of models with the same vocabulary that translate together with this one.
    memory: what `memory.build` finds for these sources, if anything.
    """
    cfg, most = settings.model, settings.data.longest
    params, cfgs = zip((params, cfg), *others, strict=True)
    decode = jax.jit(
        partial(_decode, cfgs=cfgs, temperature=temperature), static_argnames=("steps", "beams", "alpha", "best")
    )
    # No wider than the longest sentence there may be: learned positions end there.
    width_N = np.array([min(-(-len(source) // MULTIPLE) * MULTIPLE, most) for source in sources])
    found, end, key = [None] * len(sources), cfg.target_vocab_size - 1, jax.random.key(seed)
    done = 0
    for rows, row_B, width in buckets.batches(width_N, BATCH_TOKENS):
        source_BS, lengths_B = generate.pad_prompts([sources[n] for n in row_B], width)
        tokens_BWN, scores_BW = decode(
            params,
            source_BS,
            lengths_B,
            jax.random.fold_in(key, int(rows[0])),
            None if memory is None else memories.look_up(memory, row_B),
            (options.memory_share, options.memory_temperature),
            steps=min(16 + 2 * width, most),
            beams=options.beams,
            alpha=options.alpha,
            best=max(options.mbr, 1),
        )
        for n, tokens_WN, scores_W in zip(rows, np.asarray(tokens_BWN), np.asarray(scores_BW), strict=False):
            texts = [_before(end, tokens_N) for tokens_N in tokens_WN]
            found[n] = texts[minimum_risk.best([text.tolist() for text in texts], scores_W)]
        done += len(rows)
        progress(done)
    return found


def _before(end, tokens_N):
    ends = np.flatnonzero(tokens_N == end)
    return tokens_N[: ends[0] if len(ends) else None]


def _decode(params, source_BS, lengths_B, key, found, mixture, *, cfgs, temperature, steps, beams, alpha, best):
    """(tokens_BWN, scores_BW) of the `best` best beams, or of one text that is drawn.

    Each text has the end token, unless it was cut off. params: those of each model. found, mixture: of the memory that
    one model has.
    """
    with jax.default_matmul_precision("highest"):
        models = [*zip(params, cfgs, strict=True)]
        caches = [seq2seq.init_cache(own, source_BS, cfg, steps, lengths_B) for own, cfg in models]
        # Layers are taken out of their stack once, not at every step.
        extends = [partial(seq2seq.extend, seq2seq.unstack(own), cfg=cfg) for own, cfg in models]
        if found is not None:
            extends = [partial(extends[0], head=memories.head(found, *mixture))]
        alone = len(models) == 1
        extend, cache = (extends[0], caches[0]) if alone else (ensemble.together(extends), ensemble.join(caches))
        end_B = jnp.full(len(source_BS), cfgs[0].target_vocab_size - 1, jnp.int32)
        if temperature:
            draw = generate.sampler(temperature)
            one = jnp.ones_like(end_B)
            tokens_BN = generate.generate(extend, cache, end_B[:, None], one, steps, key=key, sample=draw)
            return tokens_BN[:, None], jnp.zeros((len(source_BS), 1))
        shared = ("source", "source_mask")
        searched = beam.search(extend, cache, end_B, end_B[0], steps, beams=beams, alpha=alpha, shared=shared)
        tokens_BWN, _, scores_BW = searched
        return tokens_BWN[:, :best], scores_BW[:, :best]
