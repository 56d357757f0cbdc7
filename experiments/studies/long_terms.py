"""Write terms of 100,000 digits, digit by digit: `python experiments/studies/long_terms.py RUN`.

It needs the laboratory: `pip install -e experiments/lab`. A run that is proven for every number of digits is right
in exact arithmetic. This study tests it on your machine, free-running (each digit follows the model's own digits), and
measures time and memory.

random    digits of the difference and of the first term are random
carry     the third term is 10...0, after 09...9: a carry runs from the lowest place to the highest
borrow    the third term is 9...9, after 10...0: the row counts down, and a borrow runs as far
runs      the third term consists of runs of nines and zeros, of random lengths
"""

import dataclasses
import random
import resource
import sys
import time
from dataclasses import dataclass

import _lab  # noqa: F401
import _study
from apformer_lab import continuation
from tyro.conf import Positional

from apformer import flags, runs
from apformer.files import FilePath
from apformer.report import progress
from apformer.runs.restore import Run

KINDS = ("random", "carry", "borrow", "runs")


@dataclass(frozen=True)
class LongTerms:
    """Continue terms of very many digits with a trained run, free-running, and count the wrong characters."""

    run: Positional[str | None] = None
    """Run directory, of --recipe digits of the laboratory (apformer_lab). The default is the latest run."""
    digits: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Digits of a term."""
    terms: int = 2
    """Terms that are written of each progression, after two that are given."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    run_dir: FilePath | None = None
    """Directory of the study. The default is runs/<UTC time>-long_terms."""


def progression(kind: str, digits: int, terms: int) -> tuple[int, int]:
    """Return (first term, difference) of a progression whose `terms` further terms fit, the same at every call."""
    rng, most = random.Random(digits), 10**digits
    if kind == "random":
        return rng.randrange(most // 2), rng.randrange(most // (2 * (terms + 2)))
    if kind == "carry":
        return most // 10 - 2, 1
    if kind == "borrow":
        return most // 10 + 1, -1
    third = ""
    while len(third) < digits - 1:
        third += rng.choice("09") * rng.randint(1, digits)
    third = int(third[: digits - 1])
    difference = rng.randrange(max(1, most // 100)) % (third // 2 + 1)
    return third - 2 * difference, difference


def render(numbers: list[int], digits: int, order: str) -> str:
    """Return the text of numbers as terms of `digits` digits, in the order msb or lsb."""
    return " ".join(f"{number:0{digits}}"[:: -1 if order == "lsb" else 1] for number in numbers)


def measure(loaded: Run, kind: str, args: LongTerms, digits: int) -> dict:
    """Continue one progression; return the characters written, the wrong ones, and the seconds of processor time."""
    first, difference = progression(kind, digits, args.terms)
    numbers = [first + n * difference for n in range(2 + args.terms)]
    prompt, expected = (render(part, digits, loaded.settings.data.order) for part in (numbers[:2], numbers[2:]))
    start = time.process_time()
    ((text, count),) = continuation.predict(loaded.model, loaded.settings, [prompt], "the progression", args.terms)
    seconds = time.process_time() - start
    wrong = sum(a != b for a, b in zip(text, expected, strict=True)) if count == args.terms else len(expected)
    return {"characters": len(expected), "wrong": wrong, "seconds": seconds}


def table(found):
    """Return a row for each width and kind."""
    rows = [["digits", "terms", "characters written", "wrong", "seconds of processor time"]]
    for key, result in found.items():
        digits, kind = key.split(" ")
        rows.append(
            [f"{int(digits):,}", kind, f"{result['characters']:,}", f"{result['wrong']:,}", f"{result['seconds']:.1f}"]
        )
    return rows


def draw_figure(found):
    """Draw the time for each character against the digits of a term."""
    figure, (panel,) = _study.canvas(1)
    for kind, colour in zip(KINDS, _study.COLOURS[1:], strict=True):
        results = {int(key.split(" ")[0]): result for key, result in found.items() if key.endswith(kind)}
        microseconds = [1e6 * result["seconds"] / result["characters"] for result in results.values()]
        panel.plot([*results], microseconds, "o-", color=colour, label=kind)
    panel.set(
        xscale="log",
        xlabel="digits of a term (random compiles)",
        ylabel="microseconds of processor a character",
        yscale="log",
    )
    panel.legend(frameon=False)
    return figure


def run(args):
    """Measure what is missing, print the table and draw the figure."""
    _study.check_sizes(args, "terms")
    flags.require("digits", args.digits and min(args.digits) >= 2, args, "numbers of at least 2")
    most = 10 ** (min(args.digits) - 1)  # borrows begin above it
    flags.require("terms", args.terms < most // 2, args, f"less than {most // 2:,}, for {min(args.digits)} digits")
    loaded = runs.load(args.run, args.member)
    _study.check_task(loaded, "digits")
    sys.set_int_max_str_digits(0)  # Python's own bound is 4,300 digits
    study = _study.Study("long_terms", dataclasses.replace(args, run=str(loaded.path)))
    missing = [(digits, kind) for digits in args.digits for kind in KINDS if f"{digits} {kind}" not in study.found]
    for digits, kind in progress.bar(missing, unit="progression"):
        study.save(f"{digits} {kind}", measure(loaded, kind, args, digits))
    found = study.found
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes, on Linux
    print(f"at most {memory:.2f} GB of memory, Python and JAX included")
    numbers = {
        "wrong": sum(result["wrong"] for result in found.values()),
        "characters": sum(result["characters"] for result in found.values()),
        "most": max(result["characters"] for result in found.values()),
        "longest": max(result["seconds"] for result in found.values()),
        "gigabytes": memory,
        "most_digits": max(args.digits),
        "trained": loaded.settings.data.digits,
    }
    study.finish(numbers, table(found), draw_figure(found))


if __name__ == "__main__":
    sys.exit(flags.script("long_terms.py", LongTerms, run))
