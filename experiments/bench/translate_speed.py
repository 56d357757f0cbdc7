"""Compare the sentences per second of beam search with a cache, without one, and in `transformers`.

    python experiments/bench/translate_speed.py --sentences 1000 --beams 5

All have an encoder-decoder of one shape with random weights. They translate random sources of 10 to 20 tokens, each to
`--tokens` tokens:

    cached        apformer.decoding.beam on the cache of seq2seq
    source kept   the same search; every step computes the whole target again, but not the source
    uncached      the same search; every step computes the whole target and the source again
    Marian        transformers.MarianMTModel of the same shape, with its cache; 1 thread, and one for each core

The first three must find the same texts. All are timed in turns, and the best round of each counts, since other
programs may run at the same time. Those hardly change processor time, which is that of all threads together.
OMP_WAIT_POLICY=passive keeps PyTorch's threads from spinning while they wait. The script needs the extra `parity`.
"""

import os
import sys
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

from apformer import flags, seq2seq
from apformer.decoding import beam
from apformer.report import progress

START, PADDING, END = 0, 1, 2


@dataclass(frozen=True)
class Bench:
    """Time beam search at the shape of a small translator."""

    sentences: int = 1000
    """Sentences that are translated in a turn."""
    batch_size: int = 100
    """Sentences that are translated at once."""
    beams: int = 5
    """Beams of a sentence."""
    tokens: int = 24
    """Tokens of every translation."""
    rounds: int = 3
    """Measurements of each, of which the best counts."""
    uncached: bool = True
    """Time the search without a cache too."""
    marian: bool = True
    """Time `transformers` too."""
    d_model: int = 256
    """Width."""
    n_heads: int = 4
    """Attention heads."""
    n_layers: int = 3
    """Blocks of the encoder, and of the decoder."""
    d_ff: int = 1024
    """Width of the feed-forward layer."""
    vocab_size: int = 8000
    """Tokens of both languages."""


def draw_sources(args, rng):
    """Draw the sources of all batches: [(tokens_BS, lengths_B)]."""
    batches = []
    for _ in range(args.sentences // args.batch_size):
        lengths_B = rng.integers(10, 21, args.batch_size).astype(np.int32)
        tokens_BS = rng.integers(END + 1, args.vocab_size, (args.batch_size, 20)).astype(np.int32)
        batches.append((np.where(np.arange(20)[None] < lengths_B[:, None], tokens_BS, PADDING), lengths_B))
    return batches


def searches(args, cfg):
    """Return {name: search(params, source_BS, lengths_B) -> (tokens_BKN, lengths_BK, scores_BK)}, jitted."""

    def search(extend, cache, shared=()):
        start_B = jnp.full(args.batch_size, START, jnp.int32)
        # No token of the vocabulary ends a text, so that all are of one length.
        return beam.search(extend, cache, start_B, args.vocab_size, args.tokens, beams=args.beams, shared=shared)

    def search_with_cache(params, source_BS, lengths_B):
        params = seq2seq.unstack(params)
        cache = seq2seq.init_cache(params, source_BS, cfg, args.tokens, lengths_B)
        extend = partial(_extend, params, cfg)
        return search(extend, cache, shared=("source", "source_mask"))

    def search_without_cache(remember, logits_of):
        """Return a search whose cache is the target tokens, and the result of `remember` for the source."""

        def run(params, source_BS, lengths_B):
            def extend(tokens_B1, cache):
                n = cache["length"][0]
                target_BT = cache["target"].at[:, n].set(tokens_B1[:, 0])
                logits_BTV = logits_of(params, cache["source"], target_BT)
                return logits_BTV[:, n][:, None], cache | {"target": target_BT, "length": cache["length"] + 1}

            target_BT = jnp.zeros((args.batch_size, args.tokens), jnp.int32)
            source = remember(params, source_BS, lengths_B)
            return search(extend, {"source": source, "target": target_BT, "length": jnp.zeros(args.batch_size, int)})

        return run

    def remember_nothing(params, source_BS, lengths_B):
        return source_BS, lengths_B

    def apply(params, source, target_BT):
        return seq2seq.apply(params, source[0], target_BT, cfg, source_lengths_B=source[1])

    def remember_source(params, source_BS, lengths_B):
        return seq2seq.init_cache(params, source_BS, cfg, args.tokens, lengths_B)

    def decode(params, cache, target_BT):
        return seq2seq.extend(params, target_BT, cache, cfg)[0]

    functions = {"cached": search_with_cache}
    if args.uncached:
        functions |= {
            "source kept": search_without_cache(remember_source, decode),
            "uncached": search_without_cache(remember_nothing, apply),
        }
    return {name: jax.jit(function) for name, function in functions.items()}


def _extend(params, cfg, tokens_BT, cache):
    return seq2seq.extend(params, tokens_BT, cache, cfg)


def marian(args):
    """Return a MarianMTModel of the same shape."""
    sides = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": args.n_layers, f"{side}_attention_heads": args.n_heads}
        sides |= {f"{side}_ffn_dim": args.d_ff}
    tokens = {
        "decoder_start_token_id": START,
        "pad_token_id": PADDING,
        "eos_token_id": END,
        "forced_eos_token_id": None,
    }
    shape = {"vocab_size": args.vocab_size, "d_model": args.d_model, "max_position_embeddings": 64}
    cfg = transformers.MarianConfig(**shape, **sides, **tokens, activation_function="relu", scale_embedding=True)
    return transformers.MarianMTModel(cfg).eval()


@torch.inference_mode()
def generate(model, threads, source_BS, lengths_B, args):
    """Return the best translations of `transformers`: (B, 1 + tokens)."""
    torch.set_num_threads(threads)
    source = torch.tensor(source_BS).long()
    mask = (torch.arange(source.shape[1])[None] < torch.tensor(lengths_B)[:, None]).long()
    lengths = {"min_new_tokens": args.tokens, "max_new_tokens": args.tokens}
    options = {"num_beams": args.beams, "do_sample": False, "use_cache": True, "length_penalty": 0.6}
    return model.generate(source, attention_mask=mask, **lengths, **options).numpy()


def run(args):
    """Time each search, and print a line for it."""
    flags.require("batch_size", 1 <= args.batch_size <= args.sentences, args, "1 to --sentences")
    cfg = seq2seq.Config(
        source_vocab_size=args.vocab_size,
        target_vocab_size=args.vocab_size,
        d_model=args.d_model,
        n_heads=args.n_heads,
        n_encoder_layers=args.n_layers,
        n_decoder_layers=args.n_layers,
        d_ff=args.d_ff,
    )
    params = jax.jit(seq2seq.init, static_argnums=1)(jax.random.key(0), cfg)
    sources, found = draw_sources(args, np.random.default_rng(0)), {}
    turns = {name: partial(search, params) for name, search in searches(args, cfg).items()}
    for name, turn in turns.items():  # compiles
        found[name] = jax.tree.map(np.asarray, turn(*sources[0]))
        share = (found[name][0] == found["cached"][0]).all(-1).mean()
        print(f"{name}: {share:.1%} of the texts are those of the search with a cache", file=sys.stderr)
    if args.marian:
        transformers.logging.set_verbosity_error()
        model = marian(args)
        for threads in sorted({1, os.cpu_count()}):
            turns[f"Marian, {threads} threads"] = partial(generate, model, threads, args=args)
    seconds = {name: [] for name in turns}
    for name in progress.bar([*turns] * args.rounds, unit="turn"):
        start = time.perf_counter(), time.process_time()
        for source in sources:
            jax.block_until_ready(turns[name](*source))
        seconds[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    best = {name: np.min(times, axis=0) for name, times in seconds.items()}
    for name, (wall, processor) in best.items():
        ratios = " and ".join(f"{ratio:.2f}" for ratio in best[name] / best["cached"])
        rate = len(sources) * args.batch_size / wall
        print(
            f"{name:18} {wall:8.2f} s ({rate:6.1f} sentences/s), {processor:8.2f} s of CPU time: {ratios} times cached"
        )


if __name__ == "__main__":
    sys.exit(flags.script("translate_speed.py", Bench, run))
