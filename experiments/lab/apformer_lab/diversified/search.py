"""Beam search with a memory of training pairs, and the choice among the best beams."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer import seq2seq
from apformer.decoding import beam
from apformer.settings import Settings
from apformer.tasks import Progress
from apformer.tasks.translation.search import SHARED, batches, before_end
from apformer_lab.diversified import memory, minimum_risk


def search(
    sources: Sequence[np.ndarray],
    params: Any,
    settings: Settings,
    rows: Any = None,
    progress: Progress = lambda done, total: None,
) -> list[np.ndarray]:
    """Return the translation of each source: its tokens without the end token.

    Args:
        sources: int32 tokens of each sentence, with the end token.
        params: Parameters of the model.
        settings: Settings of its run; beams, alpha, mbr and memory are those of its options.
        rows: Rows of its run, whose training pairs are looked up; None where there is no memory.
        progress: Called with the number of sentences translated so far.
    """
    options, done = settings.options, 0
    memory_of_pairs = memory.build(params, settings, rows, sources, options.memory) if options.memory else None
    how = {"cfg": settings.model, "beams": options.beams, "alpha": options.alpha}
    translations = [np.zeros(0, np.int32)] * len(sources)
    for batch in batches(sources, settings.data.longest):
        row_B = np.resize(batch.rows, len(batch.source_BS))  # as the batch repeats them
        found = memory.look_up(memory_of_pairs, row_B) if memory_of_pairs else None
        tokens_BWN, scores_BW = _decode(params, batch.source_BS, batch.lengths_B, found, steps=batch.steps, **how)
        for n, tokens_WN, scores_W in zip(batch.rows, np.asarray(tokens_BWN), np.asarray(scores_BW), strict=False):
            texts = [before_end(tokens_N, settings.model) for tokens_N in tokens_WN[: max(options.mbr, 1)]]
            translations[n] = texts[minimum_risk.best([text.tolist() for text in texts], scores_W[: len(texts)])]
        done += len(batch.rows)
        progress(done, len(sources))
    return translations


@partial(jax.jit, static_argnames=("cfg", "steps", "beams", "alpha"))
def _decode(
    params: Any,
    source_BS: jax.Array,
    lengths_B: jax.Array,
    found: memory.Lookup | None,
    *,
    cfg: seq2seq.Config,
    steps: int,
    beams: int,
    alpha: float,
) -> tuple[jax.Array, jax.Array]:
    """Return (tokens_BWN, scores_BW) of all beams, best first."""
    with jax.default_matmul_precision("highest"):
        params = seq2seq.unstack(params)
        cache = seq2seq.init_cache(params, source_BS, cfg, steps, lengths_B)
        extend = memory.extend(params, cfg, found) if found else partial(seq2seq.extend, params, cfg=cfg)
        end_B = jnp.full(len(source_BS), cfg.target_vocab_size - 1, jnp.int32)
        tokens_BWN, _, scores_BW = beam.search(
            extend, cache, end_B, end_B[0], steps, beams=beams, alpha=alpha, shared=SHARED
        )
        return tokens_BWN, scores_BW
