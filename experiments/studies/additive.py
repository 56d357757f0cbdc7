"""What does additive attention cost? `python experiments/studies/additive.py` measures time and memory.

    scaled dot   q.k / sqrt(K)       one product of matrices                Vaswani et al. 2017
    additive     v.tanh(q + k)       K numbers for each query and key       Bahdanau et al. 2015

Vaswani et al. 2017, section 3.2.1: "the two are similar in theoretical complexity", yet a product of matrices is "much
faster and more space-efficient in practice". We measure softmax(scores) V and its gradient for random queries, keys
and values, in rows of growing length. The two are timed in turns, and the least time of each seed counts.
"""

import itertools
import sys
import time
from dataclasses import dataclass

import _study
import jax
import jax.numpy as jnp
import numpy as np

from apformer import flags
from apformer.files import FilePath
from apformer.layers import attention, config
from apformer.layers.masks import causal_mask
from apformer.report import progress

SCORES = {"scaled_dot": _study.COLOURS[2], "additive": _study.COLOURS[-1]}
QUANTITIES = {"ms": "milliseconds of attention and its gradient", "mb": "MB beside queries, keys and values"}


@dataclass(frozen=True)
class Additive:
    """Measure time and memory of additive and of scaled dot attention."""

    lengths: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Tokens of a row, from the least to the most."""
    heads: int = 4
    """Heads of attention."""
    width: int = 32
    """Width of a head."""
    turns: int = 10
    """Measurements of each seed, of which the least counts."""
    members: int = 4
    """Seeds of the random numbers."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-additive."""


def work(score, length, args):
    """Return a compiled function (queries, keys, values) -> gradients of the sum of squared outputs of attention."""
    vector_HK = jnp.full((args.heads, args.width), args.width**-0.5)
    score = config.load("similarity", score).score
    mask_1TS = causal_mask(jnp.arange(length)[None], jnp.arange(length)[None])

    def read(q_BTHK, k_BSHK, v_BSHK):
        scores_BHTS = score(lambda name, *_: vector_HK, q_BTHK, k_BSHK)
        return jnp.square(attention.weighted_sum(attention.softmax(scores_BHTS, mask_1TS), v_BSHK)).sum()

    shape = jax.ShapeDtypeStruct((1, length, args.heads, args.width), jnp.float32)
    return jax.jit(jax.grad(read, (0, 1, 2))).lower(shape, shape, shape).compile()


def measure(length, args):
    """Return {score: {"ms": least of each seed, "mb"}} for rows of this many tokens."""
    programs = {score: work(score, length, args) for score in SCORES}
    rows = jax.random.normal(jax.random.key(0), (args.members, 3, 1, length, args.heads, args.width))
    least = {score: np.full(args.members, np.inf) for score in SCORES}
    for _, member, score in itertools.product(range(args.turns + 1), range(args.members), SCORES):
        start = time.perf_counter()
        jax.block_until_ready(programs[score](*rows[member]))
        least[score][member] = min(least[score][member], 1e3 * (time.perf_counter() - start))
    memory = {score: programs[score].memory_analysis().temp_size_in_bytes / 1e6 for score in SCORES}
    return {score: {"ms": least[score], "mb": memory[score]} for score in SCORES}


def table(found):
    """Return a row for each length: milliseconds and megabytes of both scores, and the ratios."""
    head = [f"{score}, {unit}" for unit in ("ms", "MB") for score in SCORES]
    rows = [["tokens", *head, "times the time", "times the memory"]]
    for length, costs in found.items():
        times, sizes = [[costs[score][unit] for score in SCORES] for unit in QUANTITIES]
        shares = np.median(times[1]) / np.median(times[0]), sizes[1] / max(sizes[0], 1e-6)
        rows.append([length, *map(_study.middle, times), *(f"{mb:.2f}" for mb in sizes), *(f"{x:.1f}" for x in shares)])
    return rows


def numbers(found):
    """Return {name: number} for a record."""
    figures = {}
    for length, costs in found.items():
        for score in SCORES:
            figures |= {
                f"{score}_ms_{length}": float(np.median(costs[score]["ms"])),
                f"{score}_mb_{length}": costs[score]["mb"],
            }
        for unit in QUANTITIES:
            figures[f"{unit}_ratio_{length}"] = (
                figures[f"additive_{unit}_{length}"] / figures[f"scaled_dot_{unit}_{length}"]
            )
    return figures


def draw_figure(found, args):
    """Draw time and memory by length, with a band from the least to the greatest seed."""
    figure, panels = _study.canvas(2)
    for panel, (unit, title) in zip(panels, QUANTITIES.items(), strict=True):
        for score, colour in SCORES.items():
            values = [np.atleast_1d(found[str(length)][score][unit]) for length in args.lengths]
            panel.fill_between(
                args.lengths,
                *zip(*((values_M.min(), values_M.max()) for values_M in values), strict=True),
                color=colour,
                alpha=0.2,
            )
            middles = [np.median(values_M) for values_M in values]
            panel.plot(args.lengths, middles, color=colour, marker="o", markersize=4, label=score.replace("_", " "))
        panel.set_title(title, loc="left", fontsize=10)
        panel.set(xlabel="tokens of a row", yscale="log")
        _study.set_length_axis(panel, args.lengths)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.legend(frameon=False, fontsize=9)
    return figure


def run(args):
    """Measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "lengths", "heads", "width", "turns", "members")
    study = _study.Study("additive", args)
    for length in progress.bar([n for n in args.lengths if str(n) not in study.found], unit="length"):
        study.save(str(length), measure(length, args))
    study.finish(numbers(study.found), table(study.found), draw_figure(study.found, args))


if __name__ == "__main__":
    sys.exit(flags.script("additive.py", Additive, run))
