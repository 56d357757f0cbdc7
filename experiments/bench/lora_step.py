"""Time a LoRA step of GPT-2 124M here and in PyTorch with `peft`: `python experiments/bench/lora_step.py`.

Both have the same random weights, shape of the batch, rank, matrices with adapters (c_attn: queries, keys and values),
dropout and AdamW. Each has a process of its own, so that their memory is measured separately. They take turns, so that
other jobs slow both alike, and while one is timed, no thread of the other is busy.

    ratio = median over turns of (our seconds / their seconds)      for wall-clock time and for processor time

A ratio of two single steps would depend on what else ran at that moment. Memory is the peak resident set of each
process, at the end and before its first step. Needs the extras `text` and `parity`.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from apformer import flags
from apformer.errors import USAGE, UserError

KINDS = ("ours", "peft")


@dataclass(frozen=True)
class Bench:
    """Time a step of low-rank adapters at the shape of a published GPT-2."""

    size: Literal["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"] = "gpt2"
    """The published size."""
    batch_size: int = 4
    """Rows of a batch."""
    context: int = 128
    """Tokens of a row."""
    rank: int = 8
    """Rank of the adapters."""
    dropout: float = 0.1
    """Dropout of embeddings, sub-layers and attention weights. 0.1 is GPT-2's."""
    turns: int = 7
    """Measurements of each, after a first one that compiles."""
    steps: int = 2
    """Steps of a turn."""
    threads: int = 2
    """Threads of PyTorch; XLA takes as many as there are cores."""
    worker: str | None = None
    """Library that this process times: ours or peft. The script sets it itself."""
    folder: str | None = None
    """GPT-2 folder of the weights. The script makes one with random weights."""


def ours(args):
    """Return (function that trains some steps and returns their losses, number of trained parameters)."""
    import jax
    import jax.numpy as jnp

    from apformer.formats import gpt2
    from apformer.runs import fit
    from apformer.tasks.text import recipes

    settings = recipes.text(context=args.context, init_from=args.folder, lora_rank=args.rank)
    settings = _replace(
        settings, training={"batch_size": args.batch_size}, options={"lora_rank": args.rank, "lora_on": "attention"}
    )
    settings = _replace(settings, model={"dropout": args.dropout, "attention_dropout": args.dropout})
    state = fit.initial_state(settings, gpt2.load(args.folder)[1])
    tokens = jnp.asarray(_tokens(settings.model.vocab_size))

    def turn():
        nonlocal state
        state, metrics = fit.run_steps(state, tokens, settings, args.steps)
        return np.asarray(metrics["loss"]).tolist()

    trained = sum(leaf.size for leaf in jax.tree.leaves(state.params["adapters"]))
    return turn, trained


def _replace(settings, **parts):
    from dataclasses import replace

    return replace(settings, **{part: replace(getattr(settings, part), **new) for part, new in parts.items()})


def peft(args):
    """Return the same as `ours`, with PyTorch, `transformers` and `peft`."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    transformers.logging.disable_progress_bar()
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), args.dropout)
    model = transformers.GPT2LMHeadModel.from_pretrained(args.folder, **dropout)
    adapters = LoraConfig(r=args.rank, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(model, adapters).train()
    params = [leaf for leaf in model.parameters() if leaf.requires_grad]
    rule = torch.optim.AdamW(params, lr=2e-4, betas=(0.9, 0.99), weight_decay=0.01)
    tokens = torch.from_numpy(_tokens(model.config.vocab_size).astype(np.int64))

    def step():
        start_B = torch.randint(len(tokens) - args.context, (args.batch_size,))
        batch = torch.stack([tokens[start : start + args.context + 1] for start in start_B])
        logits_BTV = model(batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), batch[:, 1:].flatten())
        rule.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        rule.step()
        return loss.item()

    return lambda: [step() for _ in range(args.steps)], sum(leaf.numel() for leaf in params)


def _tokens(vocab_size):
    return np.random.default_rng(0).integers(0, vocab_size, 20_000).astype(np.int32)


def work(args):
    """Run a turn for each line of standard input, and print its results as a line of JSON."""
    turn, trained = {"ours": ours, "peft": peft}[args.worker](args)
    print(json.dumps({"trained": trained, "resident": _resident()}), flush=True)
    for _ in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        losses = turn()
        totals = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        per_step = {name: seconds / args.steps for name, seconds in totals.items()}
        print(json.dumps(per_step | {"losses": losses, "resident": _resident()}), flush=True)


def _resident():
    """Return the peak resident set of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bench(args):
    """Run both workers in turns, and print medians."""
    if args.worker:
        work(args)
        return
    env = {name: value for name, value in os.environ.items() if name not in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    with tempfile.TemporaryDirectory() as folder:
        _write_random(Path(folder) / "gpt2", args.size)
        flag_words = [
            word
            for name in ("batch_size", "context", "rank", "dropout", "steps", "threads")
            for word in (f"--{name}", str(getattr(args, name)))
        ]
        command = [sys.executable, __file__, *flag_words, "--folder", str(Path(folder) / "gpt2"), "--worker"]
        workers = {
            kind: subprocess.Popen([*command, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
            for kind in KINDS
        }
        first = {kind: _answer(worker) for kind, worker in workers.items()}
        turns = {kind: [] for kind in KINDS}
        for number in range(args.turns + 1):
            for kind in KINDS if number % 2 else KINDS[::-1]:
                workers[kind].stdin.write("\n")
                workers[kind].stdin.flush()
                turns[kind].append(_answer(workers[kind]))
            if number:
                times = ", ".join(f"{kind} {turns[kind][-1]['wall']:.2f} s" for kind in KINDS)
                print(f"turn {number} of {args.turns}: {times} a step", file=sys.stderr, flush=True)
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    report(args, first, turns)


def _answer(worker):
    """Read the next line of JSON from a worker. Raises UserError (exit USAGE) if it has ended, after its message."""
    line = worker.stdout.readline()
    if not line:
        raise UserError("one of the two processes has ended: follow its message above", USAGE)
    return json.loads(line)


def _write_random(folder, size):
    """Write a GPT-2 folder of random weights, in a process that ends before any is timed."""
    program = (
        "import sys, jax; from apformer import model; from apformer.formats import gpt2; cfg = gpt2.SIZES[sys.argv[2]];"
        "gpt2.save(sys.argv[1], jax.jit(model.init, static_argnums=1)(jax.random.key(0), cfg), cfg)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder), size], check=True)


def report(args, first, turns):
    """Print the medians of both, and the ratios of their turns."""
    print(
        f"{args.size}, rank {args.rank} on c_attn, {args.batch_size} rows of {args.context} tokens, "
        f"dropout {args.dropout}, {args.turns} turns of {args.steps} steps"
    )
    for kind in KINDS:
        seconds = {clock: np.median([turn[clock] for turn in turns[kind][1:]]) for clock in ("wall", "processor")}
        print(
            f"{kind:5} {first[kind]['trained']:>10,} numbers trained, {seconds['wall']:.3f} s a step, "
            f"{seconds['processor']:.3f} s of processor time, at most {turns[kind][-1]['resident'] / 1e9:.2f} GB "
            f"resident, {first[kind]['resident'] / 1e9:.2f} GB before the first step; "
            f"loss {turns[kind][0]['losses'][0]:.3f}, then {turns[kind][-1]['losses'][-1]:.3f}"
        )
    for clock in ("wall", "processor"):
        ratios = [ours[clock] / peft[clock] for ours, peft in zip(*(turns[kind][1:] for kind in KINDS), strict=True)]
        print(f"{clock:9} ratio {np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    sys.exit(flags.script("lora_step.py", Bench, bench))
