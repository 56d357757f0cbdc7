"""Measure how time and memory of a gradient grow with the length of a row, if attention has a window of 64 tokens.

    python experiments/bench/window.py

It is the gradient of the loss of one row, for a decoder of 4 layers and 4 heads that is 128 wide and has rotary
positions. "Square" computes all pairs of tokens and masks those outside the window. Memory is what the compiled program
needs for intermediate results. The last columns are the costs divided by twice those of half the length.
"""

import sys
import time
from dataclasses import dataclass
from statistics import median

import jax
import jax.numpy as jnp
from machine import processor

from apformer import flags, model
from apformer.loss import cross_entropy

CFG = model.Config(vocab_size=65, d_model=128, n_heads=4, n_layers=4, position="rotary", window=64, final_norm=True)


@dataclass(frozen=True)
class Window:
    """Time the gradient of a decoder with a window, for rows of 512 tokens and more."""

    longest: int = 8192
    """Tokens of the longest row."""
    longest_square: int = 2048
    """Tokens of the longest row for which the masked square is timed too."""
    turns: int = 7
    """Measurements of each, of which the median is printed."""


def measure(T: int, square: bool, turns: int) -> tuple[float, int]:
    """Return the seconds of one gradient and the bytes of its intermediate results, for a row of T tokens."""

    def loss(params, tokens_BT):
        positions_BT = jnp.arange(T)[None] if square else None  # with positions given, attention is the masked square
        logits_BTV = model.apply(params, tokens_BT[:, :-1], CFG, positions_BT=positions_BT)
        return cross_entropy(logits_BTV, tokens_BT[:, 1:], jnp.ones((1, T)))

    params = jax.jit(model.init, static_argnums=1)(jax.random.key(0), CFG)
    tokens_BT = jax.random.randint(jax.random.key(1), (1, T + 1), 0, CFG.vocab_size)
    step = jax.jit(jax.grad(loss)).lower(params, tokens_BT).compile()
    jax.block_until_ready(step(params, tokens_BT))
    seconds = []
    for _ in range(turns):
        start = time.perf_counter()
        jax.block_until_ready(step(params, tokens_BT))
        seconds.append(time.perf_counter() - start)
    return median(seconds), step.memory_analysis().temp_size_in_bytes


def run(args):
    """Print a line for each length."""
    flags.require("longest", args.longest >= 512, args, "512 or more")
    flags.require("turns", args.turns >= 1, args, "1 or more")
    print(f"{processor()}, jax {jax.__version__}\ntokens  chunks         square         over proportional")
    T, previous = 512, None
    while T <= args.longest:
        chunks = measure(T, False, args.turns)
        square = measure(T, True, args.turns) if T <= args.longest_square else None
        growth = (
            ""
            if previous is None
            else "   ".join(f"{now / (2 * was):.2f}" for now, was in zip(chunks, previous, strict=True))
        )
        print(f"{T:6}  {_words(chunks)}  {_words(square)}  {growth}".rstrip(), flush=True)
        T, previous = 2 * T, chunks


def _words(found):
    return "-".ljust(20) if found is None else f"{found[0] * 1e3:7.1f} ms {found[1] / 2**20:6.0f} MB"


if __name__ == "__main__":
    sys.exit(flags.script("window.py", Window, run))
