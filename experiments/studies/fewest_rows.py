"""From how few rows is the rule learned so well that it is proven for every number of digits?

`python experiments/studies/fewest_rows.py` trains models on a small number of different rows, least significant digit
first, and judges each model on every context in exact arithmetic (_proof.py). It needs the laboratory:
`pip install -e experiments/lab`.

random    rows of the recipe's generator, of 1 to `digits` digits, half of them with runs of zeros or nines. Each seed
          has its own rows.
chosen    a greedy choice from 4,096 such rows: always the row with the most facts that no chosen row shows yet. When
          all facts are shown, the choice starts anew with all facts. All seeds have the same rows.

A fact is what one place of a row shows of the rule z = 2x - y:

- the digits x and y with the carry into the place, which decide z;
- x, y and z, which decide the carry into the next place;
- x and y of the lowest place;
- z of the last place;
- one of x, y and z with x or y of the next place, which are independent of each other.

The number of digits is a fact, too.
"""

import sys
from dataclasses import dataclass
from itertools import product

import _proof
import _study
import jax
import numpy as np
from apformer_lab import rows
from apformer_lab.rows import Batch

from apformer import flags
from apformer.errors import USAGE, UserError
from apformer.files import FilePath
from apformer.machine import process
from apformer.report import progress
from apformer.runs import recipes
from apformer.tokenizers.digits import decode, encode

CANDIDATES = 4096
TERMS = 4  # of a row, at most
FORM = rows.Format(digits=rows.MOST, wraps=False)


@dataclass(frozen=True)
class FewestRows:
    """Train on a few different rows, and count the seeds that are proven for every number of digits."""

    random: tuple[int, ...] = (1000, 500, 250)
    """Numbers of random rows."""
    chosen: tuple[int, ...] = (200, 100, 50, 25)
    """Numbers of chosen rows."""
    digits: int = 5
    """Most digits of a term."""
    members: int = 4
    """Seeds of each number of rows."""
    flags: str = "--d_model 32 --d_ff 64 --steps 1000 --learning_rate 8e-3 --weight_decay 1.0"
    """More flags of `apformer train`."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-fewest_rows."""


def random_rows(seed, digits, count):
    """Return `count` different random rows as lines of text. Raises UserError (exit USAGE) if too few are found."""
    lines, attempt, previous = {}, 0, -1
    while len(lines) < count:
        if len(lines) == previous:
            raise UserError(f"only {previous:,} rows of {digits} digits were found: give more --digits", USAGE)
        previous = len(lines)
        lines |= dict.fromkeys(draw_lines(jax.random.fold_in(jax.random.key(seed), attempt), digits))
        attempt += 1
    return [*lines][:count]


def draw_lines(key, digits):
    """Draw up to 2,048 rows as lines of text, half of them with runs; leave out rows whose third term does not fit."""
    keys, lines = jax.random.split(key, 3), []
    width_B = jax.random.randint(keys[0], (1024,), 1, digits + 1)
    for row_key, kind in zip(keys[1:], rows.KINDS, strict=True):
        batch = jax.tree.map(np.asarray, rows.encode(_draw(row_key, FORM, width_B, digits, TERMS, kind), FORM))
        for tokens_T, weights_T in zip(batch.tokens_BT, batch.weights_BT, strict=True):
            if weights_T.any():
                lines.append(decode(tokens_T[: np.flatnonzero(weights_T)[-1] + 1]))
    return [line for pair in zip(lines[: len(lines) // 2], lines[len(lines) // 2 :], strict=False) for line in pair]


_draw = jax.jit(rows.draw, static_argnums=(1, 3, 4, 5))


def encode_lines(lines, width, size):
    """Return the lines, repeated in order, as a Batch of `size` rows of `width` tokens."""
    batch = Batch(*(np.zeros((len(lines), width), dtype) for dtype in (np.int32, np.float32, np.int32)))
    for b, line in enumerate(lines):
        tokens_T = encode(line)
        term_T = np.cumsum(tokens_T == _proof.SPACE)
        batch.tokens_BT[b, : len(line)], batch.term_BT[b, : len(line)] = tokens_T, term_T
        batch.weights_BT[b, : len(line)] = term_T >= 2
    return jax.tree.map(lambda leaf: np.resize(leaf, (size, width)), batch)


def facts(line):
    """Return the set of facts that a row shows."""
    found, terms = set(), [[int(digit) for digit in term] for term in line.split(" ")]
    for y, x, z in zip(terms, terms[1:], terms[2:], strict=False):
        carry = 0
        for place, (a, b, c) in enumerate(zip(y, x, z, strict=True)):
            last, total = place == len(z) - 1, 2 * b - a + carry
            found.add(("digit", b, a, carry) if place else ("lowest", b, a))
            found.add(("last", c) if last else ("carry", b, a, c))
            if not last:
                above = enumerate((y[place + 1], x[place + 1]))
                found |= {("beside", m, upper, n, lower) for m, upper in above for n, lower in enumerate((a, b, c))}
            carry = total // 10
    return found | {("width", len(terms[0]))}


def chosen_rows(digits, count):
    """Return `count` greedily chosen rows that show as many facts as they can, as lines of text."""
    lines = random_rows(0, digits, CANDIDATES)
    facts_by_row = [facts(line) for line in lines]
    number = {fact: n for n, fact in enumerate(sorted(set().union(*facts_by_row), key=str))}
    facts_BN = np.zeros((len(lines), len(number)), np.float32)
    for b, row_facts in enumerate(facts_by_row):
        facts_BN[b, [number[fact] for fact in row_facts]] = 1.0
    chosen, available_B, unseen_N = [], np.ones(len(lines), bool), np.ones(len(number), np.float32)
    while len(chosen) < count:
        new_B = np.where(available_B, facts_BN @ unseen_N, -1.0)
        if new_B.max() <= 0:
            unseen_N[:] = 1.0
            continue
        best = int(new_B.argmax())
        chosen.append(lines[best])
        available_B[best], unseen_N[facts_BN[best] > 0] = False, 0.0
    return chosen


def settings_of(args):
    """Return the settings that all models share."""
    words = ["--recipe", "digits", "--order", "lsb", "--digits", str(args.digits), "--hard_fraction", "0"]
    return recipes.parse([*words, *args.flags.split()])


def measure(kind, count, seed, args):
    """Train a model; return the characters of its rows, the number of wrong strings, and the smallest margin."""
    settings = settings_of(args)
    lines = random_rows(1 + seed, args.digits, count) if kind == "random" else chosen_rows(args.digits, count)
    # One shape for all models, so that only one program is compiled.
    batch = encode_lines(lines, TERMS * (args.digits + 1) - 1, max(args.random + args.chosen))
    wrong, margin = _proof.judge(_proof.learn(settings, seed, batch), settings)
    print(f"seed {seed}, {count} {kind} rows: {len(wrong)} wrong, smallest margin {margin:.2f}", file=sys.stderr)
    return {"characters": sum(map(len, lines)), "wrong": len(wrong), "margin": margin}


def table(found):
    """Return a row for each kind and number of rows."""
    rows = [["rows", "number", "characters", "seeds proven", "contexts wrong, median (most)", "smallest margins"]]
    for key, result in found.items():
        kind, count = key.split(" ")
        wrong, margins = result["wrong"], [m for m, w in zip(result["margin"], result["wrong"], strict=True) if not w]
        spread = f"{min(margins):.2f} to {max(margins):.2f}" if margins else "-"
        cells = [
            kind,
            f"{int(count):,}",
            f"{int(np.mean(result['characters'])):,}",
            f"{wrong.count(0)} of {len(wrong)}",
        ]
        rows.append([*cells, f"{np.median(wrong):,.0f} ({max(wrong):,})", spread])
    return rows


def numbers(found):
    """Return {name: number} for a record."""
    return {f"{key.replace(' ', '_')}_proven": result["wrong"].count(0) for key, result in found.items()}


def draw_figure(found, args):
    """Draw the seeds that are proven, and the contexts that are wrong, against the number of rows."""
    figure, panels = _study.canvas(2)
    for kind, colour in (("random", _study.COLOURS[2]), ("chosen", _study.COLOURS[4])):
        counts = sorted(getattr(args, kind))
        wrong_by_count = [found[f"{kind} {count}"]["wrong"] for count in counts]
        panels[0].plot(counts, [wrong.count(0) for wrong in wrong_by_count], color=colour, marker="o", label=kind)
        panels[1].plot(
            counts, [max(np.median(wrong), 0.5) for wrong in wrong_by_count], color=colour, marker="o", label=kind
        )
        for count, wrong in zip(counts, wrong_by_count, strict=True):
            panels[1].plot([count] * len(wrong), np.maximum(wrong, 0.5), ".", color=colour, alpha=0.4, markersize=4)
    panels[0].set(ylabel=f"seeds proven, of {args.members}", ylim=(-0.05 * args.members, 1.05 * args.members))
    panels[0].yaxis.get_major_locator().set_params(integer=True)
    panels[1].set(ylabel="contexts wrong (median; a dot a seed)", yscale="log")
    panels[1].set_yticks([0.5, 1, 10, 100, 1000, 10000, 100000], ["0", "1", "10", "100", "1,000", "10,000", "100,000"])
    for panel in panels:
        _study.set_length_axis(panel, sorted({*args.random, *args.chosen}))
        panel.tick_params(axis="x", labelsize=7)
        panel.set(xlabel=f"different training rows, of at most {args.digits} digits")
    panels[1].yaxis.minorticks_off()
    panels[0].legend(frameon=False)
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "random", "chosen", "digits", "members")
    flags.require("chosen", max(args.chosen) <= CANDIDATES, args, f"at most {CANDIDATES} rows")
    study = _study.Study("fewest_rows", args)
    process.keep_programs()
    cases = [(kind, count) for kind in ("random", "chosen") for count in getattr(args, kind)]
    for seed, (kind, count) in progress.bar([*product(range(args.members), cases)], unit="model"):
        if f"{kind} {count} {seed}" not in study.found:
            study.save(f"{kind} {count} {seed}", measure(kind, count, seed, args))
    found = {}
    for kind, count in cases:
        models = [study.found[f"{kind} {count} {seed}"] for seed in range(args.members)]
        found[f"{kind} {count}"] = {
            name: [model[name] for model in models] for name in ("characters", "wrong", "margin")
        }
    study.finish(numbers(found), table(found), draw_figure(found, args))


if __name__ == "__main__":
    sys.exit(flags.script("fewest_rows.py", FewestRows, run))
