"""Does a GPT-2 that has read half of a text learn the rest faster? `python experiments/finetune_gpt2.py FILE`.

A small GPT-2 is trained on the first half of FILE. Then three runs learn the second half in the same number of
steps: one trains all weights of that model, one trains low-rank adapters, and one starts from scratch. Each is a run of
`apformer train --recipe text`. After a stop, give the same command with --run_dir to continue.

    runs/<UTC time>-finetune/
        first.txt  second.txt                           the halves
        pretrained/  full/  low_rank/  from_scratch/    the runs
        loss.png                                        the validation loss of the last three
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from apformer import files, flags
from apformer.commands import train
from apformer.errors import DATA, USAGE, UserError
from apformer.files import FilePath
from apformer.report import figures
from apformer.runs import directory, metrics, recipes
from apformer.tasks.text import corpus

WAYS = ("full", "low_rank", "from_scratch")
GPT2 = "--attention_bias --activation gelu_tanh".split()


@dataclass(frozen=True)
class Finetune:
    """Train a small GPT-2 on one half of a text, and compare three ways to learn the other half."""

    file: Positional[FilePath]
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
    """Rows per step."""
    vocab_size: int = 1024
    """Tokens of the vocabulary, byte pairs that are learned from the first half."""
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
    run_dir: FilePath | None = None
    """Directory for all files. The default is runs/<UTC time>-finetune."""


def run(args):
    """Train the four models, print the table and draw the losses."""
    for flag in ("steps", "pretrain_steps", "lora_rank"):
        flags.require(flag, 1 <= getattr(args, flag) < 2**31, args, "1 to 2147483647")
    path, text = Path(args.run_dir or directory.dated("finetune")), corpus.read(args.file)
    write_halves(path, text, args.file)
    model = GPT2 + flag_words(args, "vocab_size", "d_model", "n_heads", "n_layers")
    common_flags = flag_words(args, "save_every", "context", "batch_size", "seed") + ["--log_every", args.save_every]
    from_pretrained = ["--init_from", path / "pretrained"]
    ways = {
        "pretrained": [*model, "--tokenizer", "byte_pairs"],
        "full": [*from_pretrained, "--learning_rate", 1e-3],
        "low_rank": [*from_pretrained, "--learning_rate", 5e-3, "--lora_rank", args.lora_rank],
        "from_scratch": [*model, "--tokenizer", path / "pretrained"],
    }
    for name, way_flags in ways.items():
        if name == "pretrained":
            half = ["--text", path / "first.txt", "--steps", args.pretrain_steps]
        else:
            half = ["--text", path / "second.txt", "--steps", args.steps, "--warmup_steps", args.steps // 10 + 1]
        words = ["--recipe", "text", "--run_dir", path / name, *half, *common_flags, *way_flags]
        train.train_or_resume(recipes.parse([str(word) for word in words]))
    print(table(path))
    with files.disk_errors(path):
        draw({name: curve(path / name) for name in WAYS}).savefig(path / "loss.png")
    print(path / "loss.png")


def draw(curves):
    """Draw the validation loss of several ways to train, from {name: [(step, nats per token), ...]}."""
    figure, (axes,) = figures.panels("Fine-tuning: loss on held-out text")
    for (name, points), colour in zip(curves.items(), (figures.BLUE, figures.SKY, figures.ORANGE), strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, marker="o", markersize=3.5, label=name)
    axes.set(xlabel="step", ylabel="loss (nats per token)")
    figures.legend(axes)
    return figure


def write_halves(path, text, name):
    """Write both halves of a text. Raises UserError: DATA if it is empty, USAGE if the files hold another text."""
    if not text:
        raise UserError(f"{name} is empty: give a text to train on", DATA)
    with files.disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    halves = {"first.txt": text[: len(text) // 2], "second.txt": text[len(text) // 2 :]}
    for file, half in halves.items():
        if (path / file).exists() and files.read_text(path / file) != half:
            raise UserError(f"{path / file} holds another text than {name}: give another --run_dir", USAGE)
    for file, half in halves.items():
        files.write_text(path / file, half)


def flag_words(args, *names):
    """Return these flags and their values, as a flat list."""
    return [word for name in names for word in (f"--{name}", getattr(args, name))]


def curve(path):
    """Return [(step, validation loss)] of a run."""
    records = metrics.read_metrics(path)
    return [(record["step"], record["validation_loss"]) for record in records if "validation_loss" in record]


def table(path):
    """Return the text of a table, with a line for each way to learn the second half."""
    found = {name: files.read_json(path / name / "evaluation.json") for name in WAYS}
    return "\n".join(
        f"{name:12}  {result['nats_per_token']:.4f} nats per token, {result['bits_per_character']:.4f} bits per "
        f"character at step {result['step']:,}"
        for name, result in found.items()
    )


def main():
    """Run the script, and return its exit code."""
    return flags.script("finetune_gpt2.py", Finetune, run)


if __name__ == "__main__":
    sys.exit(main())
