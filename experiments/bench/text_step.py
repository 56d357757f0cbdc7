"""Milliseconds of a training step here and in PyTorch: `python experiments/bench/text_step.py FILE`.

The same shape, batch and text. In PyTorch it is the usual loop: nn.Linear, fused causal attention, AdamW, a batch of
random windows a step. All take turns, so that what else runs on the machine slows all; what is printed is the
median of the turns, beside PyTorch with the better number of threads. Needs the parity extra.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from apformer.runs import fit, recipes
from apformer.tasks import choose

TURNS, STEPS = 7, 50


class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.expand, self.contract = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x):
        B, T, D = x.shape
        joined = self.query_key_value(self.attention_norm(x)).view(B, T, 3, self.n_heads, -1)
        query, key, value = joined.permute(2, 0, 3, 1, 4)
        mean = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mean.transpose(1, 2).reshape(B, T, D))
        return x + self.contract(F.gelu(self.expand(self.feedforward_norm(x))))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.token, self.position = nn.Embedding(cfg.vocab_size, cfg.d_model), nn.Embedding(cfg.max_len, cfg.d_model)
        self.blocks = nn.Sequential(*(Block(cfg.d_model, cfg.n_heads) for _ in range(cfg.n_layers)))
        self.norm = nn.LayerNorm(cfg.d_model)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.norm(self.blocks(x)) @ self.token.weight.T


def torch_turn(settings, tokens, threads):
    """A function that trains STEPS steps in PyTorch, and the number of its parameters."""
    cfg, context, batch = settings.model, settings.data.context, settings.training.batch_size
    model = Decoder(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    offsets = torch.arange(context + 1)

    def turn():
        torch.set_num_threads(threads)
        for _ in range(STEPS):
            rows = tokens[torch.randint(len(tokens) - context, (batch, 1)) + offsets]
            loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return turn, sum(leaf.numel() for leaf in model.parameters())


def jax_turn(settings, tokens):
    """The same of `apformer train`."""
    state = fit.initial_state(settings)

    def turn():
        nonlocal state
        state, metrics = fit.run_steps(state, tokens, settings, STEPS)
        jax.block_until_ready(metrics)

    return turn, sum(leaf.size for leaf in jax.tree.leaves(state.params))


def main(words):
    settings = recipes.parse(["--recipe", "baby_gpt_cpu", "--text", *words])
    settings, rows = choose.read(settings)
    adamw = recipes.parse(["--recipe", "baby_gpt_cpu", "--text", *words, "--rule", "adamw"])
    adamw, _ = choose.read(adamw)
    tokens = torch.from_numpy(rows["train"].astype(np.int64))
    turns = {
        **{
            f"PyTorch, AdamW, {n} threads": torch_turn(settings, tokens, n)
            for n in sorted({1, torch.get_num_threads()})
        },
        "apformer, AdamW": jax_turn(adamw, jnp.asarray(rows["train"])),
        f"apformer, {settings.optimizer.rule}": jax_turn(settings, jnp.asarray(rows["train"])),
    }
    seconds = {name: [] for name in turns}
    for number in range(TURNS + 1):
        for name, (turn, _) in turns.items():
            begun = time.perf_counter()
            turn()
            if number:  # the first compiles
                seconds[name].append((time.perf_counter() - begun) / STEPS)
    medians = {name: np.median(measured) for name, measured in seconds.items()}
    best = min(median for name, median in medians.items() if name.startswith("PyTorch"))
    for name, median in medians.items():
        print(
            f"{name:26} {turns[name][1]:>10,} parameters {1e3 * median:8.1f} ms a step, {median / best:.2f} of PyTorch"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
