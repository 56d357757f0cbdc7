"""What is each part worth? `python experiments/studies/parts.py` trains without one part at a time.

Each row of the table is the default recipe with one thing changed, trained from the same seeds: no feed-forward, no
residual connection, no norm, no positions, RMSNorm for LayerNorm, dropout on the attention weights or on the outputs of
sub-layers. An ablation (`apformer report`) differs: it switches a part off in a model that learned with it.

The learning rate is that of the whole model. So a part that only helps to train at this rate looks as important as a
part without which the task cannot be learned at all.
"""

import sys
from dataclasses import dataclass

import _study
import _suites
import generalization

from apformer import files, flags
from apformer.commands import sweep
from apformer.errors import NON_FINITE, UserError
from apformer.files import FilePath

PARTS = {  # {change: value of --norm, and further flags of `apformer train`}
    "whole model": "layer",
    "RMSNorm for LayerNorm": "rms",
    "no norm": "none --no_final_norm",
    "no feed-forward": "layer --no_feedforward",
    "no residuals": "layer --no_residual",
    "no positions": "layer --position none",
    "dropout 0.1 on attention weights": "layer --attention_dropout 0.1",
    "dropout 0.1 on sub-layers": "layer --dropout 0.1",
}
SUITES = {"in distribution": "held-out lines", "more terms": "more terms than in training"}


@dataclass(frozen=True)
class Parts:
    """Train the default recipe without one part at a time, and compare exact match."""

    steps: int = 600
    """Optimizer steps of each model; a multiple of 50."""
    digits: int = 3
    """Digits of a term."""
    d_model: int = 64
    """Width of the models; a multiple of 8, the number of heads."""
    members: int = 8
    """Seeds of each model."""
    seed: int = 0
    """Random seed of the first member."""
    test_sequences: int = 512
    """Held-out progressions that are continued."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-parts."""


def words(args, path):
    """Return the flags of a sweep over all parts."""
    names = ("steps", "digits", "d_model", "members", "seed", "test_sequences")
    common_flags = [word for name in names for word in (f"--{name}", str(getattr(args, name)))]
    return [
        "--norm",
        ",".join(PARTS.values()),
        *common_flags,
        "--ema",
        "0",
        "--until",
        "steps",
        "--no_certify",
        "--run_dir",
        str(path),
    ]


def table(records):
    """Return a row for each part: % of terms exactly right, free-running, as median (least to greatest) of seeds."""
    rows = [["model", "weights", *SUITES.values(), "seeds whose loss was not finite"]]
    for name in PARTS:
        trained = [record for record in records[name] if not record["failed"]]
        cells = [_study.spread(shares(trained, suite)) for suite in SUITES]
        n_failed = len(records[name]) - len(trained)
        rows.append([name, f"{records[name][0]['parameters']:,}", *cells, str(n_failed)])
    return rows


def shares(records, suite):
    """Return the share of terms exactly right, free-running, of each record."""
    return [record["suites"][suite]["free_running"] for record in records]


def numbers(records):
    """Return {name: number} for a record: the least, median and greatest share of each part."""
    figures = {}
    for name, members in records.items():
        found = sorted(shares([record for record in members if not record["failed"]], "in distribution"))
        if found:
            ends = {"least": found[0], "median": (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2}
            key = name.replace(" ", "_").replace("-", "_").replace(".", "").lower()
            figures |= {f"{key}_{end}": share for end, share in (ends | {"greatest": found[-1]}).items()}
    return figures


def draw_figure(path, records):
    """Draw the learning curve of each part, and every seed on both suites."""
    rows = []
    for name, members in records.items():
        for _, exact in sweep.curves(path, members, "exact"):
            trained = [record for record in members if not record["failed"]]
            suites = [{suite: record["suites"][suite] for suite in SUITES} for record in trained]
            rows.append((name, exact, suites))
    return _suites.draw(rows)


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "steps", "digits", "d_model", "members", "test_sequences")
    flags.require("digits", args.digits >= 3, args, "3 or more, so that longer rows are held out")
    study = _study.Study("parts", args)
    try:
        generalization.sweep(words(args, study.path / "sweep"))
    except UserError as error:
        if error.exit_code != NON_FINITE:
            raise
    path = study.path / "sweep"
    found = generalization.measure_members(path, files.read_json(path / "sweep.json")["members"])
    records = {name: [r for r in found if r["combination"]["norm"] == flag] for name, flag in PARTS.items()}
    study.finish(numbers(records), table(records), draw_figure(path, records))


if __name__ == "__main__":
    sys.exit(flags.script("parts.py", Parts, run))
