"""Translate with a trained encoder-decoder: `apformer translate RUN "seven hundred and five"`, or a file."""

import json
import sys
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import Positional

from apformer import seq2seq
from apformer.commands import _prompts
from apformer.decoding import beam, generate
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.runs import directory, restore
from apformer.tasks.translation import corpus, training
from apformer.tokenizers import pretrained

EXAMPLE = 'apformer translate RUN "seven hundred and five"'
BATCH_TOKENS = 1024  # of the sources of a batch, padded
MULTIPLE = 8  # of which the padded widths are


@dataclass(frozen=True)
class Translate:
    """Translate a sentence, or a file of them, a line each."""

    run_and_sentence: Positional[tuple[str, ...]] = ()
    """[RUN] SENTENCE, or [RUN] with --file; the latest run if none is given."""
    file: str | None = None
    """A file with a sentence a line, or - for standard input; prints a translation a line."""
    beams: int | None = None
    """Of the search; 1: always the most likely token. As the run was scored, if not given."""
    alpha: float | None = None
    """Length penalty: 0 for none, more for longer translations. As the run was scored, if not given."""
    temperature: float = 0.0
    """Above 0: no search, tokens are drawn; below 1 the likely become likelier."""
    seed: int = 0
    """Of the draws."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    json: bool = False
    """Print one JSON object."""


def translate(args):
    """Print the translation of each sentence. Raises UserError that names the flag, the file or the line."""
    require("beams", args.beams is None or 1 <= args.beams < 2**15, args, "1 to 32767")
    require("alpha", args.alpha is None or 0 <= args.alpha < 100, args, "at least 0 and less than 100")
    require("temperature", 0 <= args.temperature < 1e6, args, "0 or more")
    require("seed", 0 <= args.seed < 2**31, args, "0 to 2147483647")
    run, lines, name = _prompts.read([*args.run_and_sentence], args.file, "a sentence", EXAMPLE, corpus.lines_of)
    path = directory.find(run)
    settings = restore.load_settings(path)
    if not isinstance(settings.data, corpus.Config):
        raise UserError(f"{path} was not trained to translate: train a model with `experiments/translate.py`", USAGE)
    tokenizer = pretrained.load(path / "tokenizer.json")
    sources = training.encode_side(tokenizer, lines, name, settings.data)
    params, _, _ = restore.load_params(path, settings, args.member)
    given = {name: getattr(args, name) for name in ("beams", "alpha") if getattr(args, name) is not None}
    method = {"teaching": replace(settings.drawing, **given), "temperature": args.temperature, "seed": args.seed}
    found = [tokenizer.decode(tokens_T) for tokens_T in search(sources, params, settings, **method)]
    if args.json:
        answers = [{"source": line, "translation": text} for line, text in zip(lines, found, strict=True)]
        print(json.dumps({"run": str(path), "translations": answers}, ensure_ascii=False))
    else:
        sys.stdout.write("".join(text.replace("\n", " ") + "\n" for text in found))


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
