"""Translate many sentences, by beam search or by sampling."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apformer import seq2seq
from apformer.decoding import beam, buckets, generate
from apformer.errors import UserError, tell
from apformer.settings import Settings
from apformer.tasks import Progress
from apformer.tasks.translation import training, vocabularies

BATCH_TOKENS = {"cpu": 256}  # of the sources of a batch, padded, so that its caches fit into those of a CPU; else 1024
MULTIPLE = 8  # sources are padded to multiples of this, so that few programs are compiled
SHARED = ("source", "source_mask")  # names in the cache that the beams of a sentence share


class Batch(NamedTuple):
    """Sources of one padded width."""

    rows: np.ndarray  # indices of the sentences
    source_BS: np.ndarray  # their tokens, and those of repeated sentences until the batch is full
    lengths_B: np.ndarray
    steps: int  # most tokens of a translation, its end token included


def batches(sources: Sequence[np.ndarray], longest: int) -> Iterator[Batch]:
    """Yield all sources that are not blank in batches of about as many tokens as BATCH_TOKENS says.

    Args:
        sources: int32 tokens of each sentence, with the end token.
        longest: Most tokens of a source and of a translation, where learned positions end.
    """
    length_N = np.array([len(source) for source in sources])
    filled_N = np.flatnonzero(length_N > 1)
    width_N = np.minimum(-(-length_N[filled_N] // MULTIPLE) * MULTIPLE, longest)
    for rows, row_B, width in buckets.batches(width_N, BATCH_TOKENS.get(jax.default_backend(), 1024)):
        prompts = generate.pad_prompts([sources[n] for n in filled_N[row_B]], width)
        yield Batch(filled_N[rows], *prompts, min(16 + 2 * width, longest))


def translate(
    sentences: Sequence[str],
    run: Any,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
    name: str = "sentences",
) -> list[str]:
    """Return the translation of each sentence; of a blank one, no text.

    Args:
        sentences: Texts, or one.
        run: Run of a translator, from `apformer.load`.
        temperature: See `search`.
        seed: Seed of the draws.
        progress: Called with the number of translated sentences, and of all.
        name: Name of the sentences in a message.

    Raises:
        UserError: DATA for a sentence that is too long, USAGE for a run of another task.
    """
    if run.settings.architecture != "seq2seq":
        raise UserError(f"{run.path} is a run of {run.settings.task}: name a run of translation")
    sentences = [sentences] if isinstance(sentences, str) else sentences
    source, target = vocabularies.load(run.path)
    sources = training.encode_side(source, sentences, name, run.settings.data, "translate shorter sentences")
    found = search(sources, run.params, run.settings, temperature, seed, progress)
    return [target.decode(tokens_T) for tokens_T in found]


def search(
    sources: Sequence[np.ndarray],
    params: Any,
    settings: Settings,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> list[np.ndarray]:
    """Return the translation of each source: its tokens without the end token; of a blank source, no tokens.

    Args:
        sources: int32 tokens of each sentence, with the end token.
        params: Parameters of `seq2seq`.
        settings: Settings of the run; beams and alpha are those of its options.
        temperature: 0 for the best text of the beam search, or the temperature to sample at.
        seed: Seed of the draws.
        progress: Called with the number of translated sentences, and of all.
    """
    options = settings.options
    key = jax.random.key(seed)
    done = 0
    cut = 0
    translations = [np.zeros(0, np.int32)] * len(sources)
    progress(done, len(sources))  # shown while the first batch is compiled
    for batch in batches(sources, settings.data.longest):
        key_of_batch = jax.random.fold_in(key, int(batch.rows[0]))
        how = (settings.model, batch.steps, temperature, options.beams, options.alpha)
        tokens_BN = _decode(params, batch.source_BS, batch.lengths_B, key_of_batch, *how)
        for n, tokens_N in zip(batch.rows, np.asarray(tokens_BN), strict=False):
            translations[n] = before_end(tokens_N, settings.model)
            cut += len(translations[n]) == batch.steps
        done += len(batch.rows)
        progress(done, len(sources))
    if cut:
        limits = f"twice the source and 16 tokens, or --longest {settings.data.longest}"
        tell(f"{cut:,} of {len(sources):,} translations are cut: they do not end within {limits}")
    return translations


def before_end(tokens_N: np.ndarray, cfg: seq2seq.Config) -> np.ndarray:
    """Return the tokens before the first end token, or all if there is none."""
    ends = np.flatnonzero(tokens_N == cfg.target_vocab_size - 1)
    return tokens_N[: ends[0] if len(ends) else None]


@partial(jax.jit, static_argnums=range(4, 9))
def _decode(
    params: Any,
    source_BS: jax.Array,
    lengths_B: jax.Array,
    key: jax.Array,
    cfg: seq2seq.Config,
    steps: int,
    temperature: float,
    beams: int,
    alpha: float,
) -> jax.Array:
    """Return tokens_BN; each row has the end token unless it was cut off at `steps` tokens."""
    with jax.default_matmul_precision("highest"):
        cache = seq2seq.init_cache(params, source_BS, cfg, steps, lengths_B)
        extend = partial(seq2seq.extend, seq2seq.unstack(params), cfg=cfg)
        end_B = jnp.full(len(source_BS), cfg.target_vocab_size - 1, jnp.int32)
        if temperature:
            draw = generate.Sampling(temperature)
            return generate.generate(extend, cache, end_B[:, None], jnp.ones_like(end_B), steps, key=key, sampling=draw)
        return beam.search(extend, cache, end_B, end_B[0], steps, beams=beams, alpha=alpha, shared=SHARED)[0][:, 0]
