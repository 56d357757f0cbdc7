"""Fine-tune a GPT-2 on a text file: `python experiments/finetune_gpt2.py FILE --gpt2 FOLDER --method low_rank`.

FOLDER holds config.json, model.safetensors and a tokenizer. Without one, a small GPT-2 is pretrained on the first half
of the text and fine-tuned on the second, fully and by low-rank adapters, beside one that is trained on the second half
from scratch for as many steps; `--method` says which of the two is exported.

    runs/<UTC time>-finetune/
        finetune.json    the flags, the versions, what the text holds, and the result
        loss.jsonl       training and validation loss, in nats per token
        loss.png         the validation loss of each way to train
        model/           config.json, model.safetensors, tokenizer.json: `transformers` opens it
        pretrained/      the same of the small GPT-2 before it was fine-tuned
"""

import dataclasses
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
from tqdm import tqdm
from tyro.conf import Positional

from apformer import files, flags, model, optimizer
from apformer.errors import USAGE, UserError
from apformer.formats import gpt2
from apformer.report import figures
from apformer.runs import directory, provenance
from apformer.tasks.text import corpus, finetune, training
from apformer.tokenizers import pretrained
from apformer.tokenizers import text as text_tokenizer


@dataclass(frozen=True)
class Finetune:
    """Fine-tune a GPT-2 on a text file, and export it."""

    file: Positional[str]
    """A UTF-8 text file, the end of which is kept for validation."""
    gpt2: str | None = None
    """A folder with config.json and model.safetensors; a small GPT-2 is pretrained here if not given."""
    tokenizer: str | None = None
    """A file or folder that holds the tokenizer of --gpt2, if that folder does not."""
    way: finetune.Way = finetune.Way()
    context: int = 128
    """Tokens of a row."""
    validation_share: float = 0.1
    """The end of a text that is kept for validation."""
    learning_rate: float | None = None
    """The peak, of AdamW, for --method; if not given, with --gpt2 5e-5 (full) or 2e-4 (low_rank), else 1e-3 or 5e-3."""
    weight_decay: float = 0.01
    """On matrices and embeddings."""
    evaluate_every: int = 25
    """Steps between validations; the best of them is exported."""
    seed: int = 0
    """Of the weights, the adapters, the windows and dropout."""
    run_dir: str | None = None
    """A new directory; runs/<UTC time>-finetune if not given."""
    pretrain_steps: int = 300
    """Steps on the first half of the text, without --gpt2, as the flags below."""
    pretrain_rate: float = 4e-3
    """The peak learning rate, of Muon, of these steps and of training from scratch."""
    vocab_size: int = 1024
    """Byte pairs learned from the first half."""
    d_model: int = 192
    """Width."""
    n_heads: int = 6
    """Attention heads."""
    n_layers: int = 4
    """Blocks."""


RATES = {"full": 5e-5, "low_rank": 2e-4}  # of published GPT-2; the second as in Hu et al. 2021
RATES_OF_SMALL = {"full": 1e-3, "low_rank": 5e-3}


def check(args):
    """Raises UserError (exit USAGE) that names the first flag out of range."""
    for flag in ("rank", "steps", "batch_size", "accumulate"):
        flags.require(flag, 1 <= getattr(args.way, flag) < 2**31, args.way, "1 to 2147483647")
    for flag in ("evaluate_every", "pretrain_steps", "d_model", "n_heads", "n_layers"):
        flags.require(flag, 1 <= getattr(args, flag) < 2**31, args, "1 to 2147483647")
    flags.require("alpha", 0 < args.way.alpha < 1e6, args.way, "more than 0 and less than 1000000")
    for flag in ("learning_rate", "pretrain_rate"):
        rate = getattr(args, flag)
        flags.require(flag, rate is None or 0 < rate < 10, args, "more than 0 and less than 10")
    flags.require("weight_decay", 0 <= args.weight_decay < 10, args, "at least 0 and less than 10")
    flags.require("seed", 0 <= args.seed < 2**31, args, "0 to 2147483647")
    flags.require("d_model", args.d_model % args.n_heads == 0, args, f"a multiple of --n_heads {args.n_heads}")
    if args.tokenizer is not None and args.gpt2 is None:
        raise UserError(f"--tokenizer {args.tokenizer} is of no --gpt2: give that too, or drop it", USAGE)
    corpus.check(cut(args))


def cut(args):
    """How the text is cut."""
    return corpus.Config(args.file, context=args.context, validation_share=args.validation_share)


def settings_of(args, cfg, method, rate, steps, rule="adamw"):
    """The settings of one way to train."""
    way = dataclasses.replace(args.way, method=method, steps=steps)
    warmup, decay = max(steps // 10, 1), args.weight_decay
    rule = optimizer.Config(rule, rate, warmup_steps=warmup, weight_decay=decay)
    return finetune.Settings(way, cfg, cut(args), rule)


def from_nothing(args, cfg, steps):
    """The settings of training fresh weights, by the optimizer that learns most in few steps (`recipes.baby_gpt`)."""
    return settings_of(args, cfg, "full", args.pretrain_rate, steps, "muon")


def given(args):
    """(cfg, params, rows) of the GPT-2 folder and the text. Raises UserError where they do not go together."""
    whole = corpus.read(args.file)
    cfg, params = gpt2.load(args.gpt2)
    tokenizer = pretrained.load(args.tokenizer or args.gpt2)
    text_tokenizer.check_vocabulary(tokenizer, cfg.vocab_size, args.gpt2)
    flags.require("context", args.context <= cfg.max_len, args, f"at most {cfg.max_len}, the positions of {args.gpt2}")
    return cfg, params, training.encode_rows(corpus.split(whole, cut(args)), tokenizer, cut(args))


def small(args):
    """(cfg of the small GPT-2, rows of the first half of the text, rows of the second). Raises UserError."""
    data = cut(args)
    halves = corpus.split(corpus.read(args.file), dataclasses.replace(data, validation_share=0.5))
    tokenizer = text_tokenizer.train_byte_pairs(halves[0], args.vocab_size)
    shape = {"d_model": args.d_model, "n_heads": args.n_heads, "n_layers": args.n_layers, "max_len": args.context}
    cfg = dataclasses.replace(gpt2.SIZES["gpt2"], vocab_size=tokenizer.vocab_size, dropout=0.0, **shape)
    return cfg, *(training.encode_rows(corpus.split(half, data), tokenizer, data) for half in halves)


def fit(name, params, rows, settings, args, path):
    """What `finetune.fit` finds, behind a progress bar and with a line of loss.jsonl for every validation."""
    with tqdm(total=settings.way.steps, desc=name, unit="step", disable=None, dynamic_ncols=True) as bar:

        def report(step, loss, record):
            bar.update(step - bar.n)
            bar.set_postfix_str(f"loss {float(loss):.4f}")
            if record is not None:
                files.append_record(path / "loss.jsonl", {"run": name, **record})
                tqdm.write(f"{name}, step {step:,}: validation {record['validation_loss']:.4f}", file=sys.stderr)

        return finetune.fit(params, rows, settings, args.seed, args.evaluate_every, report)


def export(folder, params, cfg, tokenizer):
    """A folder that `transformers` opens, with a tokenizer that it runs as it stands in tokenizer.json."""
    gpt2.save(folder, params, cfg)
    pretrained.save(tokenizer, folder / "tokenizer.json")
    files.write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def pretrain(args, path, cfg, rows):
    """(params of the small GPT-2 before it has seen anything, after the first half of the text)."""
    fresh = model.init(jax.random.key(args.seed), cfg)
    size = sum(leaf.size for leaf in jax.tree.leaves(fresh))
    print(f"no --gpt2: pretraining one of {size:,} parameters on the first half of the text", file=sys.stderr)
    params = fit("pretraining", fresh, rows, from_nothing(args, cfg, args.pretrain_steps), args, path).params
    export(path / "pretrained", params, cfg, rows["tokenizer"])
    return fresh, params


def run(args):
    """Fine-tune, and keep and print what came of it."""
    check(args)
    method = args.way.method
    alone = args.gpt2 is not None
    params = None
    if alone:
        cfg, params, rows = given(args)
    else:
        cfg, first, rows = small(args)
    if method == "low_rank" or not alone:
        flags.require("rank", args.way.rank <= cfg.d_model, args.way, f"at most {cfg.d_model}, the width of the model")
    path = Path(args.run_dir or directory.dated("finetune"))
    directory.create("finetune", path, needs=sum(leaf.nbytes for leaf in jax.tree.leaves(params)))
    rates = (RATES if alone else RATES_OF_SMALL) | ({method: args.learning_rate} if args.learning_rate else {})
    settings = {name: settings_of(args, cfg, name, rate, args.way.steps) for name, rate in rates.items()}
    data = training.describe_rows(settings[method], rows)
    said = {"flags": asdict(args), "versions": provenance.versions(), "data": data}
    files.write_json(path / "finetune.json", said)
    if alone:
        results = {method: fit(method, params, rows, settings[method], args, path)}
    else:
        fresh, params = pretrain(args, path, cfg, first)
        results = {name: fit(name, params, rows, settings[name], args, path) for name in settings}
        results["from scratch"] = fit("from scratch", fresh, rows, from_nothing(args, cfg, args.way.steps), args, path)
    export(path / "model", results[method].params, cfg, rows["tokenizer"])
    found = {name: {"loss": best.loss, "step": best.step} for name, best in results.items()}
    files.write_json(path / "finetune.json", said | {"found": found})
    with files.disk_errors(path):
        figures.fine_tuning({name: best.curve for name, best in results.items()}).savefig(path / "loss.png")
    print(table(results, rows), f"\n{path / 'model'}\n{path / 'loss.png'}", sep="\n")


def table(results, rows):
    """A line for each way to train: the validation loss before, and the best after."""
    lines = (
        f"{name:12}  {best.curve[0][1]:.4f} -> {best.loss:.4f} nats per token (step {best.step}), "
        f"{training.bits_per_character(best.loss, rows):.4f} bits per character"
        for name, best in results.items()
    )
    return "\n".join(lines)


def main():
    """Run; the exit code of the process."""
    return flags.script("finetune_gpt2.py", Finetune, run)


if __name__ == "__main__":
    sys.exit(main())
