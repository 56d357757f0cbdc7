"""Beam search by several models, with a memory of training pairs, and the choice among the best beams."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import seq2seq
from apformer.decoding import beam
from apformer.settings import Settings
from apformer.tasks.translation.search import SHARED, batches, before_end
from apformer_lab.diversified import ensemble, memory, minimum_risk


def search(
    sources: Sequence[np.ndarray],
    params: Any,
    settings: Settings,
    others: Sequence[tuple[Any, seq2seq.Config]] = (),
    looked_up: memory.Memory | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[np.ndarray]:
    """Return the translation of each source: its tokens without the end token.

    Args:
        sources: int32 tokens of each sentence, with the end token.
        params: Parameters of the model.
        settings: Settings of its run; beams, alpha and mbr are those of its options.
        others: Parameters and Config of models that translate together with it, with the same vocabulary.
        looked_up: What `memory.build` returns for these sources; for one model alone.
        progress: Called with the number of sentences translated so far.
    """
    options, done = settings.options, 0
    models, cfgs = zip((params, settings.model), *others, strict=True)
    how = {"cfgs": cfgs, "beams": options.beams, "alpha": options.alpha}
    translations = [np.zeros(0, np.int32)] * len(sources)
    for batch in batches(sources, settings.data.longest):
        found = None if looked_up is None else memory.look_up(looked_up, batch.row_B)
        tokens_BWN, scores_BW = _decode(models, batch.source_BS, batch.lengths_B, found, steps=batch.steps, **how)
        for n, tokens_WN, scores_W in zip(batch.rows, np.asarray(tokens_BWN), np.asarray(scores_BW), strict=False):
            texts = [before_end(tokens_N, settings.model) for tokens_N in tokens_WN[: max(options.mbr, 1)]]
            translations[n] = texts[minimum_risk.best([text.tolist() for text in texts], scores_W[: len(texts)])]
        done += len(batch.rows)
        progress(done)
    return translations


@partial(jax.jit, static_argnames=("cfgs", "steps", "beams", "alpha"))
def _decode(
    models: tuple[Any, ...],
    source_BS: jax.Array,
    lengths_B: jax.Array,
    found: memory.Found | None,
    *,
    cfgs: tuple[seq2seq.Config, ...],
    steps: int,
    beams: int,
    alpha: float,
) -> tuple[jax.Array, jax.Array]:
    """Return (tokens_BWN, scores_BW) of all beams, best first."""
    with jax.default_matmul_precision("highest"):
        both = list(zip(map(seq2seq.unstack, models), cfgs, strict=True))
        caches = [seq2seq.init_cache(params, source_BS, cfg, steps, lengths_B) for params, cfg in both]
        extends = [partial(seq2seq.extend, params, cfg=cfg) for params, cfg in both]
        if found is not None:
            extends = [memory.extend(*both[0], found)]
        alone = len(extends) == 1
        extend, cache = (extends[0], caches[0]) if alone else (ensemble.together(extends), ensemble.join(caches))
        end_B = jnp.full(len(source_BS), cfgs[0].target_vocab_size - 1, jnp.int32)
        tokens_BWN, _, scores_BW = beam.search(
            extend, cache, end_B, end_B[0], steps, beams=beams, alpha=alpha, shared=SHARED
        )
        return tokens_BWN, scores_BW
