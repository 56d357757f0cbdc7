"""Count what proofs cost and what they cover: `python experiments/proof_cost.py FOLDER ...`, a folder for each proof.

`apformer export RUN --to proof --out FOLDER` writes such a folder. Gross et al. 2024 (arXiv 2406.11779) plot the
operations of a proof against the accuracy that it proves. Here all proofs are of accuracy 1 on terms of a fixed width,
and differ in how many progressions they decide. A multiply-add is one a b + c in a matrix product or in attention.
We count the multiply-adds

- of `apformer certify --screen`: every dot_general of `model.apply` of a row, by its shapes, times the number of rows
- of check.py in exact arithmetic, its first line: the distinct strings that each layer computes (proof/network.py),
  times

      3 D D for each state that is read   2 W D + D D + 2 D F for each string that reads W states   D V at the head

Norms, exponentials and sums are not counted. To show how enumeration grows, we also count, without a model, the
certificates that would cover all differences, up and down, of two to `--digits` digits. The seconds are those in
certificate.json and in the records.
"""

import json
import sys
from dataclasses import dataclass
from functools import partial
from math import log10, prod
from pathlib import Path

import jax
import numpy as np
import tables
from tyro.conf import Positional

from apformer import files, flags, model
from apformer.errors import DATA, UserError
from apformer.files import FilePath
from apformer.proof import network
from apformer.report import figures, progress
from apformer.report.tables import columns as format_columns
from apformer.runs import directory
from apformer.settings import model_from, part_from
from apformer.tasks import progressions
from apformer.tasks.progressions import recipes
from apformer.tasks.progressions.proof import contexts

SECONDS = {  # seconds of check.py: {digits: {column: (record, figure, seconds in its unit)}}
    "3": {"check": ("proof", "default theorem", 1)},
}
MARKS = {"screen": ("o", "#0072B2"), "check": ("s", "#D55E00"), "both": ("^", "#CC79A7")}


@dataclass(frozen=True)
class ProofCost:
    """Count what proofs cost and what they cover, as a table and a figure."""

    folders: Positional[tuple[str, ...]]
    """Folders that `apformer export RUN --to proof` wrote, one for each proof."""
    digits: int = 6
    """Most digits of the enumerations of all differences, which are counted but not run."""
    run_dir: FilePath | None = None
    """New directory for the table, the numbers and the figure. The default is runs/<UTC time>-proof_cost."""


# What `apformer certify --screen` computes


def count_multiply_adds(function, *args):
    """Return the multiply-adds of a function of arrays, from the shapes of its products."""
    return _count_in_jaxpr(jax.make_jaxpr(function)(*args).jaxpr)


def _count_in_jaxpr(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((contracted, _), _), (left, _) = equation.params["dimension_numbers"], equation.invars
            total += prod(equation.outvars[0].aval.shape) * prod(left.aval.shape[axis] for axis in contracted)
        inner = [getattr(value, "jaxpr", value) for value in equation.params.values()]
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(_count_in_jaxpr(part) for part in inner if hasattr(part, "eqns"))
    return total


def params_of(cfg):
    """Return the shapes of the parameters of a Config."""
    return jax.eval_shape(partial(model.init, cfg=cfg), jax.random.key(0))


def enumeration(cfg, data):
    """Return {"progressions", "contexts", "screen": multiply-adds} of a certificate by JAX, of terms of one width."""
    D, most = data.digits, contexts.most_terms(vars(data), vars(cfg))
    size = np.abs(np.arange(data.min_difference, data.max_difference + 1))
    rows = int(np.maximum(0, 10**D - 2 * size).sum())  # those with a third term
    text_BT = jax.ShapeDtypeStruct((1, most * (D + 1) - 2), np.int32)
    total = rows * count_multiply_adds(partial(model.apply, cfg=cfg), params_of(cfg), text_BT)
    return {"progressions": rows, "contexts": contexts.count(vars(data), vars(cfg)), "screen": total}


# What check.py computes


class Strings:
    """Count the distinct strings that check.py computes, and their multiply-adds."""

    def __init__(self, cfg):
        self.cfg, self.n_pairs, self.multiply_adds = cfg, 0, 0

    def add(self, codes):
        """Count the multiply-adds of the logits of distinct strings."""
        D, F = self.cfg["d_model"], self.cfg["d_ff"] or 4 * self.cfg["d_model"]
        self.multiply_adds += self.cfg["vocab_size"] * D * len(codes)
        for layer in range(self.cfg["n_layers"], 0, -1):
            reads = contexts.reads(self.cfg, layer)
            below = network.distinct(np.stack([part(codes, places) for places in reads]))
            below = below[below % 12 != self.cfg["vocab_size"]]
            self.multiply_adds += 3 * D * D * len(below) + (2 * len(reads) * D + D * D + 2 * D * F) * len(codes)
            codes = below


def part(codes, places):
    """Return the substrings at these places, as codes."""
    if (np.diff(places) == 1).all():
        return codes // 12 ** places[0] % 12 ** len(places)
    return sum(codes // 12**i % 12 * 12**o for o, i in enumerate(places))


def count_check_py(cfg, data):
    """Return the Strings of the first line of check.py."""
    found = Strings(cfg)
    with progress.bar(unit="slice", desc="check.py") as bar:
        for columns in contexts.slices(data, cfg):
            codes, truth = contexts.strings(columns, data, cfg)
            pairs = network.distinct((codes * 12 + truth)[truth < contexts.START])  # as check.prove_slice has them
            found.n_pairs += len(pairs)
            found.add(network.distinct(pairs // 12))
            bar.update()
    return found


# One proof, the table and the figure


def measure_proof(folder):
    """Return (digits, {quantity: number}) of the proof in a folder. Raises UserError (exit DATA) if it holds none."""
    try:
        cfg, data = (json.loads((folder / "config.json").read_text("utf-8"))[part] for part in ("model", "data"))
        certificate = json.loads((folder / "certificate.json").read_text("utf-8"))
        architecture, rows = model_from("model", cfg), part_from(progressions.Config, data)
        what = "both" if certificate["rounding"] else "check" if certificate["theorem"] else "screen"
        found = {"contexts": certificate["contexts"], f"seconds {what}": certificate["seconds"]}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{folder} holds no proof that can be read ({error!r}): export it again", DATA) from None
    name, enumeration_counts = str(rows.digits), enumeration(architecture, rows)
    strings = count_check_py(cfg, data)
    found |= enumeration_counts | {"strings": strings.n_pairs, "check": strings.multiply_adds}
    for what, (record, figure, unit) in SECONDS.get(name, {}).items():
        found[f"seconds {what}"] = unit * tables.read(record)["figures"][figure]
    return name, found


def all_differences(most):
    """Return {digits: {quantity: number}} of enumerations of all differences, up and down, with the recipe's model."""
    found = {}
    for width in range(2, most + 1):
        settings, top = recipes.exact(width), 10**width - 1
        rows = progressions.Config(digits=width, min_difference=-top, max_difference=top)
        found[width] = enumeration(settings.model, rows)
    return found


def table(proofs, enumerations):
    """Return the rows of the table: proofs that were run, then enumerations that were only counted."""
    head = [
        "proof",
        "decides",
        "contexts",
        "strings of check.py",
        "multiply-adds of the screening",
        "of check.py in exact arithmetic",
    ]
    head += ["seconds of the screening", "of exact arithmetic", "and any float32"]
    rows = []
    for name, found in proofs.items():
        label, coverage = f"{name} digits, by enumeration", f"{found['progressions']:,}"
        counts = [f"{found['contexts']:,}", f"{found['strings']:,}", f"{found['screen']:.3g}", f"{found['check']:.3g}"]
        seconds = [found.get(f"seconds {what}") for what in MARKS]
        rows.append(
            [
                label,
                coverage,
                *counts,
                *("-" if each is None else f"{each:,.{0 if each > 99 else 1}f}" for each in seconds),
            ]
        )
    for width, found in enumerations.items():
        label, numbers = f"{width} digits, all differences, not run", [found["progressions"], found["contexts"]]
        rows.append([label, *(f"{n:,}" for n in numbers), "-", f"{found['screen']:.3g}", "-", "-", "-", "-"])
    return [head, *rows]


def draw(proofs, enumerations):
    """Draw the number of decided progressions against multiply-adds and against seconds, on logarithmic axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(11, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    heights = {name: log10(found["progressions"]) for name, found in proofs.items()}
    labels = {"screen": "apformer certify --screen", "check": "check.py, exact arithmetic", "both": "and any float32"}
    for axes, prefix in ((left, ""), (right, "seconds ")):
        for what, (marker, colour) in MARKS.items():
            points = [(found[prefix + what], heights[name]) for name, found in proofs.items() if prefix + what in found]
            if points:
                axes.plot(
                    *zip(*points, strict=True), marker, color=colour, markersize=7, alpha=0.85, label=labels[what]
                )
        for name in proofs:
            least = min(proofs[name][prefix + what] for what in MARKS if prefix + what in proofs[name])
            place = {"xytext": (-9, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
            axes.annotate(f"{name} digits", (least, heights[name]), **place, fontsize=9)
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E5E5E5", linewidth=0.8)
        axes.set_axisbelow(True)
    points = [(found["screen"], log10(found["progressions"])) for found in enumerations.values()]
    left.plot(*zip(*points, strict=True), "o--", color="#0072B2", markerfacecolor="white", linewidth=1, zorder=3)
    for width, (cost, height) in zip(enumerations, points, strict=True):
        left.annotate(f"{width}", (cost, height), (6, -9), textcoords="offset points", fontsize=9)
    left.set(
        xlabel="multiply-adds of the proof (half its operations)", ylabel="progressions that it decides", ylim=(3, 13)
    )
    right.set(xlabel="seconds on two cores", xlim=(1, None))
    powers = range(4, 13, 2)
    left.set_yticks(powers, [f"$10^{{{power}}}$" for power in powers])
    left.set_title("differences of 1 to 500, and all (hollow)", fontsize=10)
    right.set_title("what was run", fontsize=10)
    right.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def run(args):
    """Count, print the table, and write it and the figure."""
    flags.require("folders", bool(args.folders), args, "at least one folder of a proof")
    flags.require("digits", 2 <= args.digits <= 6, args, "2 to 6")
    path = directory.create("proof_cost", args.run_dir or directory.dated("proof_cost"))
    proofs = dict(measure_proof(Path(folder)) for folder in args.folders)
    enumerations = all_differences(args.digits)
    found = table(proofs, enumerations)
    files.write_json(path / "evaluation.json", proofs | {f"all {width}": row for width, row in enumerations.items()})
    files.write_json(path / "table.json", found)
    figures.save(path / "figures", {"proof_cost": draw(proofs, enumerations)})
    print("\n".join(format_columns(found)))
    print(f"\n{path / 'figures' / 'proof_cost.png'}")


if __name__ == "__main__":
    sys.exit(flags.script("proof_cost.py", ProofCost, run))
