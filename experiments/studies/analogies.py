"""King - man + woman? `python experiments/studies/analogies.py FILE`: relations between words, CBOW against skip-gram.

A question b - a + c asks for d, where a : b and c : d are two pairs of one relation (Mikolov et al. 2013). Words are
ranked without a, b and c, and the rank of d counts. A model may find d without knowing the relation if d is just near
c (Linzen 2016). So we also give the rank of d among the neighbours of c alone.
"""

import itertools
import sys
from dataclasses import dataclass

import _study
import numpy as np
from tyro.conf import Positional

from apformer import flags
from apformer.errors import DATA, UserError
from apformer.files import FilePath
from apformer.runs import checkpoint
from apformer.runs.fit import abstract_state
from apformer.runs.restore import load_settings
from apformer.tasks.words import corpus
from apformer.train import trained

VARIANTS = {"cbow": _study.COLOURS[2], "skip_gram": _study.COLOURS[-1]}
RELATIONS = {
    "woman": "king queen, man woman, father mother, son daughter, brother sister, lord lady, he she, his her, "
    "uncle aunt, husband wife, sir madam",
    "many": "lord lords, friend friends, eye eyes, hand hands, word words, king kings, tear tears, day days, man men",
    "past": "is was, are were, have had, do did, come came, know knew, see saw, take took, make made, give gave",
    "thou": "i thou, my thy, me thee, mine thine, am art, have hast, will wilt, shall shalt, do dost",
}
TOP = 10  # ranks that count as found


@dataclass(frozen=True)
class Analogies:
    """Train CBOW and skip-gram on a text, and test both on relations between words."""

    text: Positional[FilePath]
    """Text file in UTF-8, with blank lines between passages."""
    steps: int = 2000
    """Optimizer steps of each model; a multiple of 100."""
    d_model: int = 100
    """Width of a vector."""
    min_count: int = 10
    """Fewest times that a word occurs. Rarer words are dropped, with the questions that contain them."""
    members: int = 4
    """Seeds of each model."""
    seed: int = 0
    """Random seed of the first member."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-analogies."""


def questions(vocabulary):
    """Return {relation: (questions, 4) indices of the words a, b, c, d}, from all pairs of pairs in the vocabulary."""
    number, found = {word: k for k, word in enumerate(vocabulary)}, {}
    for relation, pair_texts in RELATIONS.items():
        pairs = [[number.get(word) for word in pair.split()] for pair in pair_texts.split(", ")]
        pairs = [pair for pair in pairs if None not in pair]
        questions_Q4 = [(*one, *other) for one, other in itertools.permutations(pairs, 2) if len({*one, *other}) == 4]
        found[relation] = np.array(questions_Q4, int).reshape(-1, 4)
    return found


def ranks(vectors_VD, questions_Q4, alone=False):
    """Return the rank of d, from 1, by its cosine with b - a + c, or with c alone; a, b and c are left out."""
    unit_VD = vectors_VD / np.linalg.norm(vectors_VD, axis=1, keepdims=True)
    a_Q, b_Q, c_Q, d_Q = questions_Q4.T
    sum_QD = unit_VD[c_Q] if alone else unit_VD[b_Q] - unit_VD[a_Q] + unit_VD[c_Q]
    score_QV = sum_QD @ unit_VD.T
    np.put_along_axis(score_QV, questions_Q4[:, :3], -np.inf, axis=1)
    return 1 + (score_QV > np.take_along_axis(score_QV, d_Q[:, None], axis=1)).sum(1)


def learn(study, variant, args):
    """Train a variant; return {relation: counts, seconds, and of each seed the shares found and the median rank}."""
    common_flags = {name: getattr(args, name) for name in ("text", "steps", "d_model", "min_count", "members", "seed")}
    path, members = _study.train(study, variant, recipe="words", variant=variant, **common_flags)
    run = path / members[0]["folder"]
    _, state = checkpoint.load(run / "checkpoints", abstract_state(load_settings(run)))
    vectors = np.asarray(trained(state)["input"], np.float64)
    vectors_MVD = vectors if args.members > 1 else vectors[None]
    lines = (run / corpus.FILE).read_text("utf-8").splitlines()
    found = {}
    for relation, questions_Q4 in questions([line.split("\t")[0] for line in lines]).items():
        if len(questions_Q4) == 0:
            continue
        by_seed = [ranks(vectors_VD, questions_Q4) for vectors_VD in vectors_MVD]
        alone = [ranks(vectors_VD, questions_Q4, alone=True) for vectors_VD in vectors_MVD]
        found[relation] = {
            "questions": len(questions_Q4),
            "words": len(lines),
            "first": [float(np.mean(rank == 1)) for rank in by_seed],
            "found": [float(np.mean(rank <= TOP)) for rank in by_seed],
            "alone": [float(np.mean(rank <= TOP)) for rank in alone],
            "rank": [float(np.median(rank)) for rank in by_seed],
            "seconds": [record["seconds"] for record in members],
        }
    if not found:
        raise UserError(f"{args.text} has no relation with two pairs of words: give a longer English text", DATA)
    return found


def table(found):
    """Return a row for each relation and variant."""
    rows = [["relation", "questions", "model", "first, %", f"among {TOP}, %", "by c alone, %", "median rank"]]
    for relation in found["cbow"]:
        for variant in VARIANTS:
            result = found[variant][relation]
            shares = (_study.spread(result[name]) for name in ("first", "found", "alone"))
            rank = _study.middle(result["rank"], 0) + f" of {result['words']:,}"
            rows.append([relation, str(result["questions"]), variant, *shares, rank])
    return rows


def numbers(found):
    """Return {name: number} for a record: medians of the seeds, and the least and greatest share found."""
    figures = {}
    for variant, relations in found.items():
        for relation, result in relations.items():
            name = f"{variant}_{relation}"
            figures |= {f"{name}_{key}": float(np.median(result[key])) for key in ("first", "found", "alone", "rank")}
            figures |= {f"{name}_least": min(result["found"]), f"{name}_greatest": max(result["found"])}
    return figures


def draw_figure(found):
    """Draw the share found for each relation, beside the share found by c alone."""
    figure, (panel,) = _study.canvas(1)
    relations = list(found["cbow"])
    for place, (variant, colour) in enumerate(VARIANTS.items()):
        results = [found[variant][relation] for relation in relations]
        x = np.arange(len(relations)) + 0.4 * place - 0.2
        _study.bars(panel, x, [[100 * share for share in result["found"]] for result in results], colour, 0.36, variant)
        for at, result in zip(x, results, strict=True):
            label = "by the third word alone" if place == 1 and at == x[0] else None
            panel.hlines(
                100 * np.median(result["alone"]), at - 0.18, at + 0.18, color="black", linewidth=2, label=label
            )
    panel.set_xticks(range(len(relations)), [RELATIONS[name].split(",")[0].replace(" ", " : ") for name in relations])
    panel.set_title(f"answers among the {TOP} nearest, % (line: least to greatest seed)", loc="left", fontsize=10)
    panel.set(ylim=(0, 118), yticks=range(0, 101, 20))  # the legend stands above 100
    panel.legend(frameon=False, fontsize=9, ncols=3, loc="upper left")
    return figure


def run(args):
    """Train and measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "steps", "d_model", "min_count", "members")
    study = _study.Study("analogies", args)
    for variant in VARIANTS:
        if variant not in study.found:
            study.save(variant, learn(study, variant, args))
    study.finish(numbers(study.found), table(study.found), draw_figure(study.found))


if __name__ == "__main__":
    sys.exit(flags.script("analogies.py", Analogies, run))
