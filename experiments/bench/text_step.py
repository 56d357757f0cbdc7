"""Time a training step here and in PyTorch: `python experiments/bench/text_step.py FILE`.

The shape, the batch and the text are the same. The PyTorch model is that of yardstick.py: nn.Linear without biases,
fused causal attention, AdamW, a batch of random windows for each step. All are timed in turns, so that other jobs on
the machine slow all of them. The script prints medians, and their ratios to the fastest PyTorch program. It needs the
parity extra, and a C++ compiler for torch.compile.
"""

import sys
import time
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from yardstick import Decoder, trainer

from apformer import tasks
from apformer.errors import USAGE, UserError
from apformer.machine.process import guard
from apformer.runs import fit, recipes

TURNS, STEPS = 7, 50


def torch_turn(settings, tokens, threads, compiled=False):
    """Return (function that trains STEPS steps in PyTorch, number of parameters)."""
    cfg = settings.model
    model = Decoder(cfg.vocab_size, cfg.max_len, cfg.d_model, cfg.n_heads, cfg.n_layers)
    network = torch.compile(model) if compiled else model
    train = trainer(network, tokens, settings.data.context, settings.training.batch_size)

    def turn():
        torch.set_num_threads(threads)
        train(STEPS)

    return turn, sum(leaf.numel() for leaf in model.parameters())


def jax_turn(settings, tokens):
    """Return (function that trains STEPS steps as `apformer train` does, number of parameters)."""
    state = fit.initial_state(settings)

    def turn():
        nonlocal state
        state, metrics = fit.run_steps(state, tokens, settings, STEPS)
        jax.block_until_ready(metrics)

    return turn, sum(leaf.size for leaf in jax.tree.leaves(state.params))


def main(words):
    """Time training in turns. words: a text file, and flags of the recipe baby_gpt_cpu."""
    if not words or words[0].startswith("-"):
        usage = "python experiments/bench/text_step.py FILE [--flag value ...]"
        raise UserError(f"no text file is named: {usage}, with flags of `apformer train`", USAGE)
    settings = recipes.parse(["--recipe", "baby_gpt_cpu", "--text", *words])
    settings, rows = tasks.load(settings.task).load(settings)
    adamw = replace(settings, optimizer=replace(settings.optimizer, rule="adamw"))
    tokens = torch.from_numpy(rows.train.astype(np.int64))
    turns = {
        **{
            f"PyTorch, AdamW, {n} threads": torch_turn(settings, tokens, n)
            for n in sorted({1, torch.get_num_threads()})
        },
        "PyTorch, AdamW, compiled": torch_turn(settings, tokens, torch.get_num_threads(), compiled=True),
        "apformer, AdamW": jax_turn(adamw, jnp.asarray(rows.train)),
        f"apformer, {settings.optimizer.rule}": jax_turn(settings, jnp.asarray(rows.train)),
    }
    seconds = {name: [] for name in turns}
    for number in range(TURNS + 1):
        for name, (turn, _) in turns.items():
            start = time.perf_counter()
            turn()
            if number:  # the first compiles
                seconds[name].append((time.perf_counter() - start) / STEPS)
    medians = {name: np.median(times) for name, times in seconds.items()}
    best = min(median for name, median in medians.items() if name.startswith("PyTorch"))
    for name, median in medians.items():
        print(
            f"{name:26} {turns[name][1]:>10,} parameters {1e3 * median:8.1f} ms a step, {median / best:.2f} of PyTorch"
        )


if __name__ == "__main__":
    sys.exit(guard("text_step.py", partial(main, sys.argv[1:])))
