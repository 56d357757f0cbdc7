"""Measure the published figures of GPT-2 again: `python experiments/gpt2_published.py gpt2 --wikitext F --lambada F`.

apformer ships no weights and no data: you give the folder and the files. `apformer doctor gpt2 FOLDER` says whether the
folder is the published one. The files come from

    hf download gpt2 config.json model.safetensors tokenizer.json --local-dir gpt2
    wiki.test.raw        https://huggingface.co/datasets/ggml-org/ci/resolve/main/wikitext-2-raw-v1.zip
                         1,290,590 bytes, sha256 173c87a5...
    lambada_test.jsonl   https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl
                         5,153 passages, sha256 4aa8d02c...

WikiText-2 is measured as in the documentation of `transformers`: the lines of the file are joined by empty lines, and
the 287,644 tokens are read in windows of 1,024, at a stride of 1,024 (the first token of each window is not predicted)
or of 512.

    published            gpt2    medium  large   xl
    stride 1,024         29.94   -       19.44   -       [1] for gpt2, [2] for large
    stride 512           -       -       16.44   -       [2]
    the paper            29.41   22.76   19.93   18.34   [3], whose protocol is not fully described

LAMBADA: the last word of a passage is predicted from the text before it. The perplexity is exp of the mean nats of a
word. Two shares of right passages are published: those in which all tokens of the last word are the most likely ones,
and those in which its last token is.

    published            gpt2             medium           large            xl
    all tokens           32.56 %, 40.06   -                -                -, 10.63         [4] gpt2, [5] xl
    the last token       46.67 %          -                -                -                [1]
    the paper            45.99 %, 35.13   55.48 %, 15.60   60.12 %, 10.87   63.24 %, 8.63    [3]

The paper left out stop words, and does not say how.

[1] github.com/huggingface/transformers/issues/13761   [2] huggingface.co/docs/transformers/perplexity
[3] Radford et al. 2019, table 3                       [4] github.com/EleutherAI/lm-evaluation-harness/issues/2159
[5] github.com/EleutherAI/lm-evaluation-harness/issues/911
"""

import hashlib
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import Positional

from apformer import files, flags, loss
from apformer.errors import DATA, USAGE, UserError
from apformer.files import FilePath
from apformer.formats import gpt2
from apformer.report import progress
from apformer.runs import language_model
from apformer.tasks.text import corpus, folders, perplexity

SUMS = {
    "wikitext": "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
    "lambada": "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
}
FIGURES = {  # {size: {name: the published figure, and its source in the list above}}
    "gpt2": {
        "wikitext stride 1024": "29.94 [1]; the paper 29.41 [3]",
        "lambada perplexity": "40.06 [4]; the paper 35.13 [3]",
        "lambada all tokens": "32.56 % [4]; the paper 45.99 % [3]",
        "lambada last token": "46.67 % [1]",
    },
    "gpt2-medium": {
        "wikitext stride 1024": "the paper 22.76 [3]",
        "lambada perplexity": "the paper 15.60 [3]",
        "lambada all tokens": "the paper 55.48 % [3]",
    },
    "gpt2-large": {
        "lambada perplexity": "the paper 10.87 [3]",
        "lambada all tokens": "the paper 60.12 % [3]",
        "wikitext stride 1024": "19.44 [2]; the paper 19.93 [3]",
        "wikitext stride 512": "16.44 [2]",
    },
    "gpt2-xl": {
        "wikitext stride 1024": "the paper 18.34 [3]",
        "lambada perplexity": "10.63 [5]; the paper 8.63 [3]",
        "lambada all tokens": "the paper 63.24 % [3]",
    },
}
BLOCK = 32  # tokens: rows are padded to a multiple of it, so that few shapes are compiled
MOST_LOGITS = 2**26  # in a batch: 256 MB


@dataclass(frozen=True)
class Published:
    """Measure a GPT-2 on WikiText-2 and LAMBADA, and print its figures beside the published ones."""

    folder: Positional[FilePath]
    """GPT-2 folder: config.json, model.safetensors and a tokenizer."""
    wikitext: str | None = None
    """The file wiki.test.raw of WikiText-2."""
    lambada: str | None = None
    """The file lambada_test.jsonl, as OpenAI published it."""
    passages: int | None = None
    """Passages of LAMBADA to measure, from the first on. The default is all."""
    out: FilePath | None = None
    """JSON file to write the figures to."""


def run(args):
    """Print each figure beside the published ones."""
    if args.wikitext is None and args.lambada is None:
        raise UserError(
            "apformer has no weights and no data: give a folder, and --wikitext FILE or --lambada FILE", USAGE
        )
    if args.passages is not None:
        flags.require("passages", args.passages >= 1, args, "1 or more")
    if not folders.is_gpt2(args.folder):
        raise UserError(f"{args.folder} is a run: name a GPT-2 folder; {folders.HOW_TO_GET}", USAGE)
    found = language_model.load(args.folder)
    size = next((name for name, cfg in gpt2.SIZES.items() if cfg == found.model.cfg), None)
    print(f"{args.folder}: {size or 'no published size, so that no figure is comparable'}")
    figures = {}
    if args.wikitext is not None:
        figures |= wikitext(found, args.wikitext)
    if args.lambada is not None:
        figures |= lambada(found, args.lambada, args.passages)
    for name, figure in figures.items():
        cell = f"{figure:.2%}" if "token" in name else f"{figure:,.2f}"
        print(f"{name:24}{cell:>12}   published: {FIGURES.get(size, {}).get(name, '-')}")
    if args.out is not None:
        files.write_json(args.out, {"folder": args.folder, "size": size} | figures)


def wikitext(found, path):
    """Return {name: perplexity} of the file, in windows of the model's length, at a stride of it and of half of it."""
    _say_sum("wikitext", path)
    tokens_N, width, figures = found.tokenizer.encode(join_lines(corpus.read(path))), found.max_tokens, {}
    print(f"{path}: {len(tokens_N):,} tokens", flush=True)
    for stride in (width, width // 2):
        with progress.reporting(f"stride {stride}") as report:
            cost = perplexity.measure(found.model, found.tokenizer, tokens_N, width, stride, report)
        figures[f"wikitext stride {stride}"] = cost["perplexity"]
    return figures


def join_lines(text):
    """Return the lines as `datasets` has them, each with its line end and blank ones as "", joined by two line ends."""
    return "\n\n".join(line if line.strip() else "" for line in re.findall(r"[^\n]*\n|[^\n]+", text))


def lambada(found, path, most=None):
    """Return {name: figure} for the last words of passages: their perplexity, and the shares that are right."""
    _say_sum("lambada", path)
    rows = [split(found.tokenizer, text) for text in passages(path)[:most]]
    nats, hits = np.zeros(len(rows)), [None] * len(rows)
    longest = max(len(tokens) for tokens, _ in rows)
    if longest > found.max_tokens + 1:
        raise UserError(f"{path} has a passage of {longest} tokens, and the model reads {found.max_tokens}", DATA)
    order = np.argsort([len(tokens) for tokens, _ in rows], kind="stable")
    with progress.bar(desc="lambada", total=len(rows), leave=False) as bar:
        for numbers, width in batches(order, rows, found.model.cfg.vocab_size):
            tokens_BT = np.zeros((len(numbers), width + 1), np.int32)
            for row, number in enumerate(numbers):
                tokens_BT[row, : len(rows[number][0])] = rows[number][0]
            nats_BT, right_BT = map(np.asarray, _judge(found.model.apply, tokens_BT))
            for row, number in enumerate(numbers):
                tokens, first = rows[number]
                word = slice(first - 1, len(tokens) - 1)
                nats[number], hits[number] = nats_BT[row, word].sum(), right_BT[row, word]
            bar.update(len(numbers))
    return {
        "lambada perplexity": math.exp(min(float(nats.mean()), perplexity.LARGEST)),
        "lambada all tokens": float(np.mean([each.all() for each in hits])),
        "lambada last token": float(np.mean([each[-1] for each in hits])),
    }


def passages(path):
    """Return the texts of a file of JSON lines. Raises UserError (exit DATA) that names the first faulty line."""
    texts = []
    for number, line in enumerate(corpus.read(path).rstrip("\n").split("\n"), 1):
        try:
            text = files.parse_json(line)["text"]
            before, _, word = text.rpartition(" ")
        except (ValueError, KeyError, TypeError, AttributeError):
            before = word = ""
        if not before.strip() or not word:
            fault = f'{path}, line {number} is no {{"text": "words and a last word"}}'
            raise UserError(f"{fault}: give lambada_test.jsonl as OpenAI published it", DATA)
        texts.append(text)
    return texts


def split(tokenizer, text):
    """Return (tokens, index of the last word's first token). The word is encoded apart, with the space before it."""
    before, _, word = text.rpartition(" ")
    tokens = [tokenizer.encode(part) for part in (before, f" {word}")]
    return np.concatenate(tokens), len(tokens[0])


def batches(order, rows, vocab_size):
    """Yield (indices of passages, width of their rows) of each batch; `order` sorts the passages by length."""
    start = 0
    while start < len(order):
        width = -(-(len(rows[order[start]][0]) - 1) // BLOCK) * BLOCK
        size = max(1, MOST_LOGITS // (width * vocab_size))
        numbers = [number for number in order[start : start + size] if len(rows[number][0]) - 1 <= width]
        yield numbers, width
        start += len(numbers)


@jax.jit
def _judge(apply, tokens_BT):
    """Return (nats of each token after the first, whether it is the most likely)."""
    logits_BTV, targets_BT = apply(tokens_BT[:, :-1]), tokens_BT[:, 1:]
    return loss.token_nats(logits_BTV, targets_BT), jnp.argmax(logits_BTV, -1) == targets_BT


def _say_sum(name, path):
    """Warn on standard error if a file is not the published one."""
    if Path(path).is_file() and hashlib.sha256(Path(path).read_bytes()).hexdigest() != SUMS[name]:
        print(f"{path} is not the published file (sha256 {SUMS[name][:8]}...): figures may differ", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(flags.script("gpt2_published.py", Published, run))
