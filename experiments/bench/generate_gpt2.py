"""Compare tokens per second of our GPT-2 and of that of `transformers`, with caches and the same random weights.

    python experiments/bench/generate_gpt2.py --batch_sizes 1 16

A step at batch 1 has to read every parameter once, so the bandwidth of memory limits it. Of this limit it reaches

    share = (parameter bytes / seconds of a step) / bandwidth of a copy

All are timed in turns, and the best round of each counts, since other programs may run at the same time. PyTorch runs
with one thread and with one for each core; the faster counts. On a busy machine, OMP_WAIT_POLICY=passive keeps its
threads from spinning while they wait. Needs the extras `text` and `parity`.
"""

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import numpy as np
import torch
import transformers

from apformer import flags, model
from apformer.decoding.generate import generate
from apformer.formats import gpt2


@dataclass(frozen=True)
class Bench:
    """Time generation at the shape of a published GPT-2."""

    size: Literal["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"] = "gpt2"
    """The published size."""
    batch_sizes: tuple[int, ...] = (1, 16)
    """Rows generated at once."""
    prompt: int = 16
    """Tokens of a prompt."""
    tokens: int = 32
    """Tokens generated after it."""
    rounds: int = 3
    """Measurements of each, of which the best counts."""


def bench(args):
    """Print the speeds at each batch size."""
    cfg = gpt2.SIZES[args.size]
    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg)
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        gpt2.save(f"{folder}/gpt2", params, cfg)
        theirs = transformers.GPT2LMHeadModel.from_pretrained(f"{folder}/gpt2").eval()
    param_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(params)) - params["position"]["table"].nbytes
    params = jax.jit(model.unstack)(params)

    @jax.jit
    def ours(params, prompt_BT):
        B, T = prompt_BT.shape
        extend = partial(_extend, params, cfg)
        return generate(extend, model.init_cache(cfg, B, T + args.tokens), prompt_BT, np.full(B, T), args.tokens)

    bandwidth = max(copy_bandwidth() for _ in range(5))
    print(f"{args.size}: {param_bytes / 1e6:,.0f} MB of parameters a step, a copy moves {bandwidth / 1e9:.1f} GB/s")
    for B in args.batch_sizes:
        prompt_BT = np.random.default_rng(0).integers(0, cfg.vocab_size, (B, args.prompt)).astype(np.int32)
        turns = {"ours": lambda prompt_BT=prompt_BT: np.asarray(ours(params, prompt_BT))}
        for threads in sorted({1, os.cpu_count()}):
            turns[f"transformers, {threads} threads"] = partial(their_tokens, theirs, prompt_BT, args.tokens, threads)
        tokens = {name: turn() for name, turn in turns.items()}  # compile, and warm up
        best = dict.fromkeys(turns, np.inf)
        for _ in range(args.rounds):
            for name, turn in turns.items():
                begin = time.perf_counter()
                turn()
                best[name] = min(best[name], time.perf_counter() - begin)
        equal = np.mean(tokens["ours"] == tokens["transformers, 1 threads"])
        speeds = {name: B * args.tokens / seconds for name, seconds in best.items()}
        ratio = speeds["ours"] / max(speed for name, speed in speeds.items() if name != "ours")
        share = param_bytes * args.tokens / best["ours"] / bandwidth
        print(f"batch {B}: {', '.join(f'{name} {speed:.1f} tokens/s' for name, speed in speeds.items())}")
        print(f"  ratio {ratio:.2f}, share of the bandwidth {share:.0%}, {equal:.1%} of the tokens equal", flush=True)


def _extend(params, cfg, tokens_BT, cache, lengths_B=None):
    return model.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)


def their_tokens(theirs, prompt_BT, tokens, threads):
    """Return the tokens that `transformers` generates after the prompts, greedily and with its cache: (B, tokens)."""
    torch.set_num_threads(threads)
    prompt = torch.tensor(prompt_BT).long()
    lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens}
    options = {"do_sample": False, "use_cache": True, "pad_token_id": 0}
    generated = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **lengths, **options)
    return generated[:, prompt.shape[1] :].numpy()


def copy_bandwidth(megabytes=256):
    """Return the bytes per second that one thread reads and writes while it copies an array."""
    source = np.ones(megabytes * 250_000, np.float32)
    target = np.zeros_like(source)
    begin = time.perf_counter()
    np.copyto(target, source)
    return 2 * source.nbytes / (time.perf_counter() - begin)


if __name__ == "__main__":
    sys.exit(flags.script("generate_gpt2.py", Bench, bench))
