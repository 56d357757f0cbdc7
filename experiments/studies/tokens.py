"""Words, characters or byte pairs? `python experiments/studies/tokens.py FILE` cuts one text in three ways.

    characters   one token for each character
    byte pairs   the commonest sequences of bytes, `--vocab_size` of them
    words        a word with the blank before it, or any other character; rare words are one token, "unknown"

The same model learns each, from rows of the same number of bytes: the longer the tokens, the fewer there are in a row.
The score is bits per byte of the validation part, since bytes do not depend on the tokens. The letters of unknown words
cost extra bits, each by its frequency in the training part.

The models are trained with `--tokenizer characters`, on a text in which each token is one character of its own.
"""

import re
import sys
from collections import Counter
from dataclasses import dataclass

import _study
import numpy as np
from tyro.conf import Positional

from apformer import flags
from apformer.errors import USAGE, UserError
from apformer.files import FilePath
from apformer.report.figures import blank, legible
from apformer.tasks.text import corpus
from apformer.tokenizers import merges, text

KINDS = ("characters", "byte pairs", "words")
COLOURS = dict(zip(KINDS, _study.COLOURS[1:4], strict=True))
WORD = re.compile(r" ?\w+(?:'\w+)*|.", re.DOTALL)
UNKNOWN, FIRST = "<unknown>", 0xF0000  # FIRST: of the private-use characters of Unicode
MOST = 65_000  # of these characters
PICTURE_WIDTH = 88  # characters of the picture


@dataclass(frozen=True)
class Tokens:
    """Train one model on words, characters and byte pairs of a text, and compare bits per byte."""

    text: Positional[FilePath]
    """Text file in UTF-8."""
    vocab_size: int = 1024
    """Byte pairs; at least 256."""
    min_count: int = 3
    """Fewest times that a word occurs in the training part. Rarer ones are unknown."""
    row_bytes: int = 128
    """Bytes of a row, on average. The number of tokens follows from it for each kind."""
    steps: int = 1000
    """Optimizer steps of each model; a multiple of 50."""
    batch_size: int = 12
    """Rows of a step."""
    members: int = 4
    """Seeds of each model."""
    seed: int = 0
    """Random seed of the first member."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-tokens."""


def cut(kind, parts, args):
    """Return (tokens_N of each part, the text of each token, the unknown pieces of the validation part)."""
    if kind == "byte pairs":
        tokenizer = text.train_byte_pairs(parts[0], args.vocab_size)
        return [tokenizer.encode(part) for part in parts], merges.texts(tokenizer), []
    pieces = [list(part) if kind == "characters" else WORD.findall(part) for part in parts]
    common = [piece for piece, n in Counter(pieces[0]).items() if n >= args.min_count or len(piece) == 1]
    number = {piece: token for token, piece in enumerate([UNKNOWN, *sorted(common)])}
    tokens = [np.array([number.get(piece, 0) for piece in part_pieces]) for part_pieces in pieces]
    return tokens, [*number], [piece for piece in pieces[1] if piece not in number]


def spelling(pieces, training):
    """Return the bits of the letters and ends of unknown pieces, each by its frequency in the training part."""
    counts = Counter(training)
    counts["end"] = len(WORD.findall(training))
    total = counts.total() + 1  # a letter that the training part lacks counts once
    return float(-sum(np.log2(max(counts[c], 1) / total) for piece in pieces for c in [*piece, "end"]))


def learn(study, kind, parts, args):
    """Train models on a kind of tokens; return its statistics, and the bits per byte of each seed."""
    (train_N, validation_N), texts, unknown = cut(kind, parts, args)
    if len(texts) > MOST:
        raise UserError(f"{args.text} has {len(texts):,} {kind}, more than {MOST:,}: raise --min_count", USAGE)
    size = len(parts[1].encode())
    context = max(2, round(args.row_bytes * len(train_N) / len(parts[0].encode())))
    file = study.path / f"{kind.replace(' ', '_')}.txt"
    file.write_text("".join(chr(FIRST + token) for token in (*train_N.tolist(), *validation_N.tolist())), "utf-8")
    share = (len(validation_N) - 0.5) / (len(train_N) + len(validation_N))  # so that rounding cuts between the parts
    common_flags = {name: getattr(args, name) for name in ("steps", "batch_size", "members", "seed")}
    data_flags = {"text": file, "tokenizer": "characters", "validation_share": share, "context": context}
    _, members = _study.train(study, file.stem, recipe="text", **data_flags, **common_flags)
    spelling_bits = spelling(unknown, parts[0]) / size
    losses = [record["validation"]["loss"] for record in members if not record["failed"]]
    return {
        "vocabulary": len(texts),
        "bytes": size / len(validation_N),
        "context": context,
        "unknown": len(unknown) / len(WORD.findall(parts[1])),
        "weights": members[0]["parameters"],
        "spelled": spelling_bits,
        "bits": [loss / np.log(2) * (len(validation_N) - 1) / size + spelling_bits for loss in losses],
        "seconds": [record["seconds"] for record in members],
        "pieces": [texts[token] for token in validation_N[:PICTURE_WIDTH].tolist()],
    }


def table(found, args):
    """Return a row for each kind of tokens."""
    head = ["tokens", "vocabulary", "bytes of a token", f"tokens of {args.row_bytes} bytes", "unknown words", "weights"]
    rows = [[*head, "bits per byte", "of them for unknown words", "seconds"]]
    for kind, result in found.items():
        shares = (
            f"{result['bytes']:.2f}",
            str(result["context"]),
            f"{100 * result['unknown']:.2f} %",
            f"{result['weights']:,}",
        )
        cells = _study.middle(result["bits"]), f"{result['spelled']:.3f}", f"{np.median(result['seconds']):.0f}"
        rows.append([kind, f"{result['vocabulary']:,}", *shares, *cells])
    return rows


def numbers(found):
    """Return {name: number} for a record."""
    figures = {}
    for kind, result in found.items():
        name = kind.replace(" ", "_")
        figures |= {f"{name}_{key}": result[key] for key in ("vocabulary", "bytes", "context", "unknown", "spelled")}
        if result["bits"]:
            ends = {"least": min(result["bits"]), "bits": np.median(result["bits"]), "greatest": max(result["bits"])}
            figures |= {f"{name}_{key}": float(value) for key, value in ends.items()}
    return figures


def draw_figure(found):
    """Draw the first letters of the validation part in three cuts above, bits per byte and tokens of a row below."""
    figure = blank(11, 5.4)
    upper, row = figure.subfigures(2, 1, height_ratios=[1, 1.5])
    lower = row.subplots(1, 2)
    strip = upper.subplots()
    for y, (kind, result) in enumerate(found.items()):
        x = 0
        for number, piece in enumerate(result["pieces"]):
            letters = legible(piece) if piece != UNKNOWN else "?"
            if x + len(letters) > PICTURE_WIDTH:
                break
            strip.barh(y, len(letters), left=x, color=COLOURS[kind], alpha=0.25 + 0.3 * (number % 2), height=0.8)
            for place, letter in enumerate(letters):
                strip.text(x + place + 0.5, y, letter, ha="center", va="center", fontsize=8, family="monospace")
            x += len(letters)
    strip.set(xlim=(0, PICTURE_WIDTH), ylim=(len(found) - 0.5, -0.5), xticks=[])
    strip.set_yticks(range(len(found)), list(found))
    strip.set_title(
        "the same text, a shade a token (␣ a blank, ⏎ a line end, ? an unknown word)", loc="left", fontsize=10
    )
    strip.tick_params(length=0)
    strip.spines[:].set_visible(False)
    colours = [COLOURS[kind] for kind in found]
    _study.bars(lower[0], list(found), [result["bits"] for result in found.values()], colours)
    lower[0].bar(
        list(found), [result["spelled"] for result in found.values()], color="#555555", width=0.4, label="unknown words"
    )
    lower[0].set_title("bits per byte of unseen text (line: least to greatest seed)", loc="left", fontsize=10)
    lower[0].legend(frameon=False, fontsize=9)
    lower[1].bar(list(found), [result["context"] for result in found.values()], color=colours)
    lower[1].set_title("tokens of a row", loc="left", fontsize=10)
    for panel in lower:
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "min_count", "row_bytes", "steps", "batch_size", "members")
    flags.require("steps", args.steps % 50 == 0, args, "a multiple of 50")
    flags.require_whole("vocab_size", args, 256)
    parts = corpus.split(corpus.read(args.text), corpus.Config())
    study = _study.Study("tokens", args)
    for kind in KINDS:
        if kind not in study.found:
            study.save(kind, learn(study, kind, parts, args))
    study.finish(numbers(study.found), table(study.found, args), draw_figure(study.found))


if __name__ == "__main__":
    sys.exit(flags.script("tokens.py", Tokens, run))
