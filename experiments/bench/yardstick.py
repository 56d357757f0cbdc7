"""Time a known piece of work on this machine: `python experiments/bench/yardstick.py`.

Machines differ by a factor of two, and the speed of one changes from hour to hour. So times of training are also given
as multiples of a yardstick that is measured just before or after. The yardstick is 1,000 training steps of nanoGPT's
character model for a CPU, in PyTorch, not compiled. The model has 4 layers of 4 heads, is 128 wide and reads 64
characters; a batch has 12 rows. The characters are random; a text would take as long. Needs the parity extra.
"""

import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from machine import processor
from torch import nn

from apformer import flags

VOCABULARY, CONTEXT, BATCH, D_MODEL, HEADS, LAYERS = 65, 64, 12, 128, 4, 4
WARM_UP = 10


@dataclass(frozen=True)
class Yardstick:
    """Time the training of a known model in PyTorch."""

    steps: int = 1000
    """Training steps; the seconds printed are for 1,000."""
    threads: int | None = None
    """Threads of PyTorch. The default is PyTorch's own choice."""


class Block(nn.Module):
    """A pre-norm block without biases: x + attention(norm(x)), then x + feedforward(norm(x))."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm, self.feedforward_norm = (nn.LayerNorm(d_model, bias=False) for _ in range(2))
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.expand = nn.Linear(d_model, 4 * d_model, bias=False)
        self.contract = nn.Linear(4 * d_model, d_model, bias=False)

    def forward(self, x_BTD):
        B, T, D = x_BTD.shape
        qkv = self.query_key_value(self.attention_norm(x_BTD)).view(B, T, 3, self.n_heads, -1)
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4)
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        x_BTD = x_BTD + self.output(y_BHTK.transpose(1, 2).reshape(B, T, D))
        return x_BTD + self.contract(F.gelu(self.expand(self.feedforward_norm(x_BTD))))


class Decoder(nn.Module):
    """A decoder with learned positions, a final norm, and the token embedding as the output head."""

    def __init__(self, vocabulary, context, d_model, n_heads, n_layers):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, d_model), nn.Embedding(context, d_model)
        self.blocks = nn.Sequential(*(Block(d_model, n_heads) for _ in range(n_layers)))
        self.norm = nn.LayerNorm(d_model, bias=False)

    def forward(self, tokens_BT):
        x_BTD = self.token(tokens_BT) + self.position(torch.arange(tokens_BT.shape[1], device=tokens_BT.device))
        return self.norm(self.blocks(x_BTD)) @ self.token.weight.T


def trainer(model, tokens_N, context, batch):
    """Return train(steps), which runs AdamW on random windows of a text, with gradients clipped at norm 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    offsets = torch.arange(context + 1)

    def train(steps):
        for _ in range(steps):
            rows = tokens_N[torch.randint(len(tokens_N) - context, (batch, 1)) + offsets]
            loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return train


def run(args):
    """Print the seconds of 1,000 steps, the processor and the threads."""
    flags.require("steps", args.steps >= 1, args, "at least 1")
    if args.threads is not None:
        flags.require("threads", args.threads >= 1, args, "at least 1")
        torch.set_num_threads(args.threads)
    model = Decoder(VOCABULARY, CONTEXT, D_MODEL, HEADS, LAYERS)
    train = trainer(model, torch.randint(VOCABULARY, (1_000_000,)), CONTEXT, BATCH)
    train(WARM_UP)
    start = time.perf_counter()
    train(args.steps)
    seconds = (time.perf_counter() - start) * 1000 / args.steps
    versions = f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads"
    print(f"yardstick: {seconds:.1f} s for 1,000 steps ({args.steps:,} measured), {processor()}, {versions}")


if __name__ == "__main__":
    sys.exit(flags.script("yardstick.py", Yardstick, run))
