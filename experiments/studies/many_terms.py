"""Test runs on many terms of many digits: `python experiments/studies/many_terms.py RUN ...`.

It needs the laboratory: `pip install -e experiments/lab`. A row has four terms, of which the last two are predicted:
random rows, and rows with a run of places that pass on what is carried into them (apformer_lab/rows.py). One pass reads
the whole row, teacher-forced. If the likeliest character is the true one at every place, greedy decoding writes the
same row, since each of its characters then follows true ones. If not, it is wrong at the first such place. So a row
is right teacher-forced if and only if it is right free-running. Some rows are also written free-running, since their
rounding might differ.

A pass takes time in proportion to the length of a row if the model reads few keys (apformer_lab/sparse.py).
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import _lab  # noqa: F401
import _study
import jax
import jax.numpy as jnp
import numpy as np
from apformer_lab import rows
from apformer_lab.evaluation import TERMS
from tyro.conf import Positional

from apformer import flags, runs
from apformer.decoding.bind import Model
from apformer.decoding.generate import generate
from apformer.files import FilePath
from apformer.proof import check
from apformer.report import progress
from apformer.runs.restore import Run

PREDICTED_TERMS = TERMS - 2
TOKENS = 32_768  # in a pass


@dataclass(frozen=True)
class ManyTerms:
    """Test trained runs on many terms of many digits, and count the wrong ones."""

    run: Positional[tuple[str, ...]]
    """Run directories, of --recipe digits of the laboratory."""
    digits: tuple[int, ...] = (64, 1_000)
    """Digits of a term."""
    terms: int = 10_000
    """Terms to predict, for each number of digits and kind of rows."""
    written: int = 100
    """Rows that are also written free-running, for each number of digits and kind."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-many_terms."""


def draw_batches(kind: str, digits: int, count: int, form: rows.Format) -> Iterator[jax.Array]:
    """Yield the tokens of `count` rows of a kind, the same at every call, in batches (B, T)."""
    size = min(count, max(1, TOKENS // (TERMS * (digits + 1))))
    for number in range(-(-count // size)):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), digits), number)
        found = rows.held_out(key, form, digits, size, TERMS, kind)
        yield rows.encode(found, form).tokens_BT[: count - number * size]


@partial(jax.jit, static_argnames="prompt_length")
def read(model: Model, tokens_BT: jax.Array, prompt_length: int) -> jax.Array:
    """Return the margin of each character after the prompt, teacher-forced: above 0 where it is right."""
    B, T = tokens_BT.shape
    logits_BTV, _ = model.extend(tokens_BT[:, :-1], model.init_cache(B, T))
    return check.margins(logits_BTV[:, prompt_length - 1 :].astype(jnp.float32), tokens_BT[:, prompt_length:])


@partial(jax.jit, static_argnames="prompt_length")
def write(model: Model, tokens_BT: jax.Array, prompt_length: int) -> jax.Array:
    """Return which characters after the prompt are right, free-running."""
    B, T = tokens_BT.shape
    cache, lengths_B = model.init_cache(B, T), jnp.full(B, prompt_length, jnp.int32)
    return (
        generate(model.extend, cache, tokens_BT[:, :prompt_length], lengths_B, T - prompt_length)
        == tokens_BT[:, prompt_length:]
    )


def measure(loaded: Run, kind: str, digits: int, args: ManyTerms, tell: Callable) -> dict:
    """Return the number of terms and of rows written, those that are wrong, the smallest margin, and processor time."""
    form, start = loaded.settings.data.form, time.process_time()
    prompt_length = form.given(digits)
    found = {"terms": 0, "wrong": 0, "margin": np.inf, "written": 0, "written_wrong": 0}
    for tokens_BT in draw_batches(kind, digits, -(-args.terms // PREDICTED_TERMS), form):
        margin_BNC = np.asarray(read(loaded.model, tokens_BT, prompt_length)).reshape(-1, PREDICTED_TERMS, digits + 1)
        found["terms"] += margin_BNC[..., 0].size
        found["wrong"] += int((~(margin_BNC > 0).all(-1)).sum())
        found["margin"] = min(found["margin"], float(margin_BNC.min()))
        if found["written"] < args.written:
            sample_BT = tokens_BT[: args.written - found["written"]]
            right_BT = np.asarray(write(loaded.model, sample_BT, prompt_length))
            found["written"] += len(right_BT)
            found["written_wrong"] += int((~right_BT.all(1)).sum())
        tell(len(tokens_BT))
    return found | {"seconds": time.process_time() - start}


def table(found):
    """Return a row for each run, number of digits and kind."""
    head = ("run", "digits", "rows", "terms", "wrong", "rows written freely", "wrong", "smallest margin")
    lines = [[*head, "seconds of processor time"]]
    for key, result in found.items():
        run, digits, kind = key.rsplit(" ", 2)
        counts = (f"{result[name]:,}" for name in ("terms", "wrong", "written", "written_wrong"))
        lines.append([run, f"{int(digits):,}", kind, *counts, f"{result['margin']:.2f}", f"{result['seconds']:.0f}"])
    return lines


def draw_figure(found):
    """Draw the smallest margin of any character, by digits and kind, a point for each run."""
    figure, (panel,) = _study.canvas(1)
    keys = [key.rsplit(" ", 2) for key in found]
    places = list(dict.fromkeys((digits, kind) for _, digits, kind in keys))
    for run, colour in zip(dict.fromkeys(run for run, *_ in keys), 9 * _study.COLOURS, strict=False):
        margins = [found.get(" ".join((run, *place)), {"margin": np.nan})["margin"] for place in places]
        panel.plot(range(len(places)), margins, "o", color=colour, label=run)
    panel.set_xticks(range(len(places)), ["\n".join(place) for place in places])
    panel.set(xlabel="digits of a term, and rows", ylabel="smallest margin of a character")
    panel.axhline(0, color="black", linewidth=0.8)
    panel.legend(frameon=False)
    return figure


def run(args):
    """Measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "digits", "terms")
    names = [Path(path).name for path in args.run]
    flags.require("run", names and len({*names}) == len(names), args, "run directories, each of another name")
    loaded_runs = dict(zip(names, map(runs.load, args.run), strict=True))
    for loaded in loaded_runs.values():
        _study.check_task(loaded, "digits")
    study = _study.Study("many_terms", args)
    missing = [
        (name, digits, kind)
        for name in loaded_runs
        for digits in args.digits
        for kind in rows.KINDS
        if f"{name} {digits} {kind}" not in study.found
    ]
    with progress.bar(total=len(missing) * -(-args.terms // PREDICTED_TERMS), unit="row") as bar:
        for name, digits, kind in missing:
            study.save(f"{name} {digits} {kind}", measure(loaded_runs[name], kind, digits, args, bar.update))
    found = study.found.values()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes, on Linux
    print(f"at most {memory:.2f} GB of memory, Python and JAX included")
    numbers = {
        name: sum(result[name] for result in found)
        for name in ("terms", "wrong", "written", "written_wrong", "seconds")
    }
    numbers |= {"runs": len(names), "most_digits": max(args.digits), "gigabytes": memory}
    numbers["least_margin"] = min(result["margin"] for result in found)
    study.finish(numbers, table(study.found), draw_figure(study.found))


if __name__ == "__main__":
    sys.exit(flags.script("many_terms.py", ManyTerms, run))
