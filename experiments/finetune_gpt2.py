"""Does a GPT-2 that has read half of a text learn the rest faster? `python experiments/finetune_gpt2.py FILE`.

A small GPT-2 is trained on the first half. Then three runs learn the second half in as many steps: all weights of that
model, low-rank adapters of it, and a fresh model. Each is a run like any other: it can be stopped, and the same command
with the same --run_dir goes on.

    runs/<UTC time>-finetune/
        first.txt  second.txt                           the halves
        pretrained/  full/  low_rank/  from_scratch/    the runs
        loss.png                                        the validation loss of the last three

A GPT-2 folder of your own is fine-tuned by `apformer train --recipe text --text FILE --init_from FOLDER`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from apformer import files, flags
from apformer.commands import train as experiment
from apformer.report import figures
from apformer.runs import directory, metrics, recipes, selection
from apformer.tasks.text import corpus

WAYS = ("full", "low_rank", "from_scratch")


@dataclass(frozen=True)
class Finetune:
    """Train a small GPT-2 on one half of a text, and compare three ways to learn the other half."""

    file: Positional[str]
    """A text file in UTF-8."""
    steps: int = 100
    """Optimizer steps on the second half."""
    pretrain_steps: int = 300
    """Optimizer steps on the first half."""
    save_every: int = 25
    """Steps between validations."""
    context: int = 128
    """Tokens of a row."""
    batch_size: int = 8
    """Rows a step."""
    vocab_size: int = 1024
    """Byte pairs learned from the first half."""
    d_model: int = 192
    """Width of the model."""
    n_heads: int = 6
    """Attention heads."""
    n_layers: int = 4
    """Blocks."""
    lora_rank: int = 8
    """Rank of the adapters."""
    seed: int = 0
    """Random seed of weights, adapters and windows."""
    run_dir: str | None = None
    """A directory for all of it; runs/<UTC time>-finetune if not given."""


def run(args):
    """Train the four models, and keep and print what came of them."""
    path = Path(args.run_dir or directory.dated("finetune"))
    whole = corpus.read(args.file)
    with files.disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    for name, half in zip(("first", "second"), (whole[: len(whole) // 2], whole[len(whole) // 2 :]), strict=True):
        files.write_text(path / f"{name}.txt", half)
    pretrained, (architecture, shared) = path / "pretrained", words(args)
    train(path, "pretrained", "first", args.pretrain_steps, shared, architecture, ["--tokenizer", "byte_pairs"])
    further = ["--init_from", pretrained, "--warmup_steps", args.steps // 10 + 1]
    train(path, "full", "second", args.steps, shared, further, ["--learning_rate", 1e-3])
    low_rank = ["--learning_rate", 5e-3, "--lora_rank", args.lora_rank]
    train(path, "low_rank", "second", args.steps, shared, further, low_rank)
    fresh = ["--tokenizer", pretrained, "--warmup_steps", args.steps // 10 + 1]
    train(path, "from_scratch", "second", args.steps, shared, architecture, fresh)
    print(table(path))
    curves = {name: curve(path / name) for name in WAYS}
    with files.disk_errors(path):
        figures.fine_tuning(curves).savefig(path / "loss.png")
    print(path / "loss.png")


def words(args):
    """(flags of the architecture, which is GPT-2's; flags that all runs have)."""
    architecture = "--attention_bias --activation gelu_tanh".split()
    for name in ("vocab_size", "d_model", "n_heads", "n_layers"):
        architecture += [f"--{name}", getattr(args, name)]
    shared = ["--log_every", args.save_every]
    for name in ("save_every", "context", "batch_size", "seed"):
        shared += [f"--{name}", getattr(args, name)]
    return architecture, shared


def train(path, name, half, steps, *flags_of_run):
    """One of the runs; what is done stays done."""
    given = ["--recipe", "text", "--text", path / f"{half}.txt", "--run_dir", path / name, "--steps", steps]
    experiment.train_or_resume(recipes.parse([str(word) for part in (given, *flags_of_run) for word in part]))


def curve(path):
    """[(step, validation loss)] of a run."""
    return [
        (record["step"], found["loss"])
        for record in metrics.read_metrics(path)
        if (found := selection.validation(record))
    ]


def table(path):
    """A line for each way to learn the second half."""
    found = {name: files.read_json(path / name / "evaluation.json") for name in WAYS}
    return "\n".join(
        f"{name:12}  {result['nats_per_token']:.4f} nats per token, {result['bits_per_character']:.4f} bits per "
        f"character at step {result['step']:,}"
        for name, result in found.items()
    )


def main():
    """Run; the exit code of the process."""
    return flags.script("finetune_gpt2.py", Finetune, run)


if __name__ == "__main__":
    sys.exit(main())
