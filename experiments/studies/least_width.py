"""How few digits must training rows have? `python experiments/studies/least_width.py`: seeds proven, by the width.

It needs the laboratory: `pip install -e experiments/lab`. With the least significant digit first, a prediction depends
on a string of six tokens (apformer_lab/proof/columns.py). The proof for every number of digits computes all 214,150
such strings. Training rows of at most W digits hold some of them:

W = 1    no digit after another digit. No place has a carry into it, and 2x - y is never above 9 or below 0
W = 2    also the highest of two digits. The carry into it comes from the lowest place, which itself has none
W = 3    also a place between two others, the lower of which has no carry into it
W = 4    all strings that rows of any width have

The proof computes a few strings more: those of terms that do not fit, which no row has. On strings that no training row
holds, a model can be right only because of its architecture. For W = 1 all carries are among these strings.
"""

import sys
from dataclasses import dataclass

import _proof
import _study
import numpy as np

from apformer import flags
from apformer.files import FilePath
from apformer.machine import process
from apformer.report import progress
from apformer.runs import recipes

MOST_ENUMERATED = 3  # digits for which all rows are enumerated


@dataclass(frozen=True)
class LeastWidth:
    """Train on terms of at most 1, 2 or 3 digits, and count the seeds that are proven for every number of digits."""

    digits: tuple[int, ...] = (3, 2, 1)
    """Most digits of a term in training."""
    members: int = 16
    """Seeds of each width."""
    steps: int = 2000
    """Optimizer steps."""
    flags: str = "--d_model 32 --d_ff 64 --learning_rate 8e-3 --weight_decay 0.4"
    """More flags of `apformer train`."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-least_width."""


def strings_in_rows(width):
    """Return the codes of all strings at predicted places in rows of four terms of `width` digits."""
    P, most, found = width + 1, 10**width, []
    y, x = (a.ravel() for a in np.meshgrid(np.arange(most), np.arange(most), indexing="ij"))
    terms = np.stack([y, x, 2 * x - y, 3 * x - 2 * y])
    fits = (terms >= 0) & (terms < most)
    terms, fits_fourth = terms[:, fits[2]], fits[3, fits[2]]
    text = [
        term // 10**place % 10 if place < width else 0 * term + _proof.SPACE for term in terms for place in range(P)
    ]
    places = np.array([0, P, P + 1, P - 1, 2 * P - 1, 2 * P])
    for t in range(2 * P - 1, 4 * P - 1):  # from the space after the second term on
        tokens = [text[t - 1 - back] if t > back else 0 * text[0] + _proof.START for back in places]
        found.append(np.unique(_code(tokens)[fits_fourth if t >= 3 * P - 1 else slice(None)]))
    return np.unique(np.concatenate(found))


def _code(strings):
    return sum(token.astype(np.int64) * 12**o for o, token in enumerate(strings))


def coverage(width, settings):
    """Return [strings of the proof, those of them that rows of at most `width` digits hold] for each kind."""
    required = np.unique(_proof.strings(settings)[0])
    covered = np.isin(required, np.concatenate([strings_in_rows(w) for w in range(1, width + 1)]))
    kind = _proof.kinds(required)
    return [[int((kind == k).sum()), int((covered & (kind == k)).sum())] for k in range(len(_proof.KINDS))]


def settings_of(width, args):
    """Return the settings that all models of a width share."""
    words = ["--recipe", "digits", "--order", "lsb", "--digits", str(width), "--steps", str(args.steps)]
    return recipes.parse([*words, *args.flags.split()])


def measure(settings, seed):
    """Train a model; return its wrong strings of each kind and its smallest margin, by numpy in exact arithmetic."""
    wrong, margin = _proof.judge(_proof.learn(settings, seed), settings)
    print(f"{settings.data.digits} digits, seed {seed}: {len(wrong)} wrong, margin {margin:.2f}", file=sys.stderr)
    return {"wrong": np.bincount(_proof.kinds(wrong), minlength=len(_proof.KINDS)).tolist(), "margin": margin}


def table(found):
    """Return a row for each width: seeds proven, strings of the proof that rows hold, and wrong strings."""
    rows = [["digits in training", "seeds proven", "strings in rows, of those asked: " + ", ".join(_proof.KINDS)]]
    rows[0] += ["wrong of each kind, median", "smallest margins"]
    for width, result in found.items():
        proven = [member for member in result["members"] if not sum(member["wrong"])]
        share = (
            ", ".join(f"{covered:,} of {required:,}" for required, covered in result["coverage"])
            if result["coverage"]
            else "all"
        )
        wrong = np.median([member["wrong"] for member in result["members"]], axis=0)
        margins = [member["margin"] for member in result["members"]]
        cells = [f"{len(proven)} of {len(result['members'])}", share, ", ".join(f"{n:,.0f}" for n in wrong)]
        rows.append([width, *cells, f"{min(margins):.2f} to {max(margins):.2f}"])
    return rows


def numbers(found):
    """Return {name: number} for a record."""
    figures = {}
    for width, result in found.items():
        proven = [member for member in result["members"] if not sum(member["wrong"])]
        figures |= {f"proven_{width}": len(proven), f"wrong_{width}": min(sum(m["wrong"]) for m in result["members"])}
        if proven:
            figures |= {f"least_margin_{width}": min(m["margin"] for m in proven)}
            figures |= {f"largest_margin_{width}": max(m["margin"] for m in proven)}
    return figures


def draw_figure(found, args):
    """Draw the wrong strings by width and kind, a dot for each seed, and the number of strings that no row holds."""
    figure, panels = _study.canvas(len(_proof.KINDS), height=3.4)
    for k, (panel, kind) in enumerate(zip(panels, _proof.KINDS, strict=True)):
        for at, result in enumerate(found.values()):
            wrong = np.maximum([member["wrong"][k] for member in result["members"]], 0.5)
            panel.plot(at + np.linspace(-0.25, 0.25, len(wrong)), wrong, ".", color=_study.COLOURS[2])
            if result["coverage"]:
                required, covered = result["coverage"][k]
                panel.plot([at - 0.35, at + 0.35], [max(required - covered, 0.5)] * 2, color=_study.COLOURS[4])
        panel.set(title=kind, yscale="log", ylim=(0.3, 5e5), xlabel="most digits in training")
        panel.set_xticks(range(len(found)), [*found])
        panel.set_yticks([0.5, 10, 1000, 100000], ["0", "10", "1,000", "100,000"])
        panel.minorticks_off()
    panels[0].set_ylabel("a dot a seed: wrong; line: in no row")
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "digits", "members", "steps")
    study = _study.Study("least_width", args)
    process.keep_programs()
    cases = [(width, seed) for width in args.digits for seed in range(args.members)]
    for width, seed in progress.bar(cases, unit="model"):
        if f"{width} {seed}" not in study.found:
            study.save(f"{width} {seed}", measure(settings_of(width, args), seed))
    found = {}
    for width in args.digits:
        members = [study.found[f"{width} {seed}"] for seed in range(args.members)]
        counts = coverage(width, settings_of(width, args)) if width <= MOST_ENUMERATED else None
        found[str(width)] = {"members": members, "coverage": counts}
    study.finish(numbers(found), table(found), draw_figure(found, args))


if __name__ == "__main__":
    sys.exit(flags.script("least_width.py", LeastWidth, run))
