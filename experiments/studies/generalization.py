"""Do models of progressions generalize? `python experiments/studies/generalization.py --position alibi,relative`.

The flags are those of `apformer sweep`, which trains the models. Each member is then measured on suites of rows, each
one step away from its training:

- in distribution       lines that training has not seen, cut to as many terms as training rows have
- more terms            such lines, up to 10 times as long; only terms beyond the length of training count
- unseen differences    beyond the largest of training, up to twice it, where three terms fit
- negative differences  those of training, negated
- one more digit        the same generator, with terms one digit wider

The rows of all suites but the second are cut to the length of training rows. A suite is None if the generator can draw
no such rows, or the model cannot read them. A suite has `--test_sequences` rows, 512 by default. If a member is right
on the first suite, and its contexts are few enough, they are all enumerated, unless `--no_certify` is given.

    runs/<UTC time>-sweep/
        suites.json         the results of each member, beside sweep.json; after a stop, the same flags continue from it
        table.md            a row for each combination; table.json is the same table, for a record
        figures/sweep.png   every member
"""

import shlex
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import _study
import _suites
import jax
import numpy as np

from apformer import files
from apformer.analysis import certificate as certification
from apformer.commands import sweep as sweeps
from apformer.errors import USAGE, UserError
from apformer.machine import process
from apformer.report import progress, tables
from apformer.runs import checkpoint, directory, recipes
from apformer.runs.fit import abstract_state
from apformer.runs.restore import bind_run, load_rows, load_settings
from apformer.settings import Settings, architecture_of
from apformer.tasks import hard_rows
from apformer.tasks.progressions import evaluation, generator, training
from apformer.tasks.progressions.proof import contexts
from apformer.train import trained

PROGRAM = "python experiments/studies/generalization.py"
MOST_CONTEXTS = 2_000_000  # more are not enumerated
FEWEST = 16  # different rows that the suite of more terms needs; of the longest rows, fewer are held out
SEQUENCES = 512  # of a suite, without --test_sequences
CAPTION = """\
Excess: the validation loss above the Bayes floor, in nats. Predictable terms exactly right, free-running, in %: median
over the seeds (worst to best, where they differ). Seconds are those of training and measuring all seeds."""

_draw = jax.jit(generator.draw, static_argnums=(1, 2, 3))


class Suite(NamedTuple):
    """Rows to measure a model on."""

    what: str  # description for the table
    rows: generator.Progressions
    digits: int
    known: int = 0  # number of first terms of a row that do not count


def suites(settings: Settings, rows: dict[str, generator.Progressions] | None = None) -> dict[str, Suite | None]:
    """Return {name: Suite or None}, each of `test_sequences` rows, the same for every seed.

    Args:
        settings: Settings of a run.
        rows: {split: Progressions} of a dataset file, whose test rows are in distribution; None for a generator.
    """
    cfg, count = settings.data, settings.options.test_sequences
    crop, least = min(settings.options.crop_terms, cfg.max_terms), max(3, cfg.min_terms)
    farthest = min((10**cfg.digits - 1) // (least - 1), 2 * cfg.max_difference - 1)

    def crop_suite(what: str, rows: generator.Progressions | None, digits: int = cfg.digits) -> Suite | None:
        return rows and Suite(what, rows._replace(terms_B=np.minimum(rows.terms_B, crop)), digits)

    def range_suite(low: int, high: int, **changes: int) -> Suite | None:
        other = replace(cfg, min_difference=low, max_difference=high, **changes)
        return crop_suite(f"differences {low} to {high}", _rows(other, count))

    wider, known = replace(cfg, digits=cfg.digits + 1), architecture_of(settings).max_tokens(settings.model)
    fits = known is None or crop * (wider.digits + 1) <= known + 1
    negative = cfg.min_difference >= 0  # else they were trained on
    return {
        "in distribution": crop_suite(f"held-out lines, up to {crop} terms", training.test_rows(settings, rows)),
        "more terms": _longer(cfg, crop, count),
        "unseen differences": range_suite(cfg.max_difference + 1, farthest, min_terms=least),
        "negative differences": range_suite(-cfg.max_difference, -max(1, cfg.min_difference)) if negative else None,
        "one more digit": crop_suite(f"{wider.digits} digits", _rows(wider, count), wider.digits) if fits else None,
    }


def _rows(cfg: generator.Config, count: int, split: str | None = None) -> generator.Progressions | None:
    """Return rows of a generator as numpy arrays; None if it can draw none."""
    try:
        generator.check(cfg)
        return jax.device_get(_draw(jax.random.key(hard_rows.TEST_KEY), cfg, count, split))
    except UserError:
        return None


def _longer(cfg: generator.Config, crop: int, count: int) -> Suite | None:
    """Return held-out rows of the most terms, up to 10 times the crop, that FEWEST rows have; None if none."""
    for terms in range(min(10 * crop, cfg.max_terms), crop, -1):
        size = (10**cfg.digits - 1) // (terms - 1)
        low, high = max(cfg.min_difference, -size), min(cfg.max_difference, size)
        fitting = replace(cfg, min_terms=terms, max_terms=terms, min_difference=low, max_difference=high)
        if (rows := _rows(fitting, count, "test")) and len({*zip(*rows, strict=True)}) >= FEWEST:
            return Suite(f"held-out lines, terms {crop + 1} to {terms}", rows, cfg.digits, crop)
    return None


def measure(suite: Suite, params: dict, settings: Settings) -> dict | None:
    """Return the share of the terms of a suite that a model continues exactly.

    Args:
        suite: Rows.
        params: Parameters of the model.
        settings: Settings of the model.

    Returns:
        {"what", "terms", "teacher_forced", "free_running"}; None if no term is predictable.
    """
    found = evaluation.outcomes(jax.device_get(suite.rows), suite.digits, bind_run(settings, params))
    counts_N = found.term_N > suite.known
    shares = {mode: evaluation.share(right_N[counts_N]) for mode, right_N in found.right.items()}
    return {"what": suite.what, "terms": int(counts_N.sum())} | shares if counts_N.any() else None


def can_enumerate(settings: Settings) -> bool:
    """Return whether the contexts of a model are finitely many, and few enough to enumerate."""
    data, cfg = asdict(settings.data), asdict(settings.model)
    return contexts.reach(cfg) is not None and 0 < contexts.count(data, cfg) <= MOST_CONTEXTS


def certificate(params: dict, settings: Settings) -> dict:
    """Return {"certified", "contexts", "errors", "smallest_margin"} of all contexts; requires `can_enumerate`.

    They come from the proof if numpy computes the model and the screening found no error, else from the screening.
    """
    case, model = certification.case(settings, contexts, params), bind_run(settings, params)
    for tally in certification.screen(case, model):
        if tally["errors"]:
            break
    proof = case.fault is None and not tally["errors"]
    if proof:
        *_, tally = certification.prove(case)
    result = certification.conclude(case, tally, proof)
    return {name: result[name] for name in ("certified", "contexts", "errors", "smallest_margin")}


def sweep(args: list[str]) -> None:
    """Train a sweep, measure the suites of each member that has none yet, print the table and draw the figure.

    Raises:
        UserError: Exit code USAGE for runs of another task; else what `sweep.run` and `sweep.require_finite` raise.
    """
    if {"-h", "--help"} & {*args}:
        print(__doc__)
        recipes.parse(["--help", *args], PROGRAM)
    flags = sweeps.read(args)
    certify = "no_certify" not in flags
    flags.pop("no_certify", None)
    for program in sweeps.programs(flags):
        if (task := program.joint.task) != "progressions":
            raise UserError(f"suites are of progressions, not of the task {task}: use `apformer sweep`", USAGE)
    flags = dict(sorted(({"test_sequences": str(SEQUENCES)} | flags).items()))
    path, result = sweeps.run(flags, sweeps.programs(flags))
    with directory.lock(path):
        try:
            members = measure_members(path, result["members"], certify)
        except (KeyboardInterrupt, SystemExit):
            print(f"{path}: the same flags with --run_dir {shlex.quote(str(path))} continue", file=sys.stderr)
            raise
    curves, finite = sweeps.curves(path, members, "exact"), [r for r in members if not r["failed"]]
    suites_of_rows = [[record["suites"] for record in records] for _, records in tables.by_combination(finite)]
    rows = [(*curve, suites) for curve, suites in zip(curves, suites_of_rows, strict=True)]
    text = table(members, sweeps.command(result["flags"], PROGRAM))
    lines = [line.strip("|").split("|") for line in text.splitlines() if line[:2] == "| " and line[:5] != "| ---"]
    files.write_json(path / "table.json", [[cell.strip() for cell in line] for line in lines])
    sweeps.publish(path, text, _suites.draw(rows) if rows else None)
    sweeps.require_finite(members)


def measure_members(path: Path, members: list[dict], certify: bool = False) -> list[dict]:
    """Return the records of sweep.json, each with its suites; measure those that are not in suites.json yet.

    Args:
        path: Directory of the sweep.
        members: Records of sweep.json.
        certify: Whether to enumerate the contexts of members for which that was not tried yet.
    """
    file, none = path / "suites.json", {"suites": {}, "certified": None, "excess": None, "seconds": 0.0}
    found = files.read_json(file) if file.exists() else {}
    keys = [f"{record['folder']}/{record['member']}" for record in members]
    found |= {key: none for key, record in zip(keys, members, strict=True) if record["failed"]}
    states: dict[str, Any] = {}
    for key, record in progress.bar([*zip(keys, members, strict=True)], desc="measure", unit="member", leave=False):
        if key in found and ("certified" in found[key] or not certify):
            continue
        run = path / record["folder"]
        if record["folder"] not in states:
            settings = load_settings(run)
            _, state = checkpoint.load(run / "checkpoints", abstract_state(settings))
            file_rows = load_rows(run)
            floor = training.floor(settings, file_rows)
            states = {record["folder"]: (settings, trained(state), suites(settings, file_rows), floor)}
        settings, params, rows, floor = states[record["folder"]]
        if settings.training.members > 1:
            params = jax.tree.map(lambda leaf_M, k=record["member"]: leaf_M[k], params)
        start = time.perf_counter()
        shares = {name: suite and measure(suite, params, settings) for name, suite in rows.items()}
        found[key] = {"suites": shares, "excess": None if floor is None else record["validation"]["loss"] - floor}
        if certify:
            found[key] |= _verdict(shares, params, settings)
        found[key]["seconds"] = round(time.perf_counter() - start, 1)
        files.write_json(file, found)
    files.write_json(file, found)
    return [
        none | record | found[key] | {"seconds": record["seconds"] + found[key]["seconds"]}
        for key, record in zip(keys, members, strict=True)
    ]


def _verdict(shares: dict[str, dict | None], params: dict, settings: Settings) -> dict:
    """Return {"certified": None} for too many contexts, False after a wrong term, else the facts of a certificate."""
    if not can_enumerate(settings):
        return {"certified": None}
    # one wrong term is enough to rule out a certificate
    wrong = (shares["in distribution"] or {}).get("teacher_forced", 1) < 1
    return {"certified": False} if wrong else certificate(params, settings)


def table(members: list[dict], command: str) -> str:
    """Return the table of the suites, and a note on each suite."""
    names = next((record["suites"] for record in members if not record["failed"]), {})

    def cells(records: list[dict]) -> dict[str, str]:
        finite = [record for record in records if not record["failed"]]
        answers, excess = ([record[name] for record in finite] for name in ("certified", "excess"))
        found = {"excess": "-" if None in excess else _study.middle(excess)}
        for name in names:
            results = [record["suites"][name] for record in finite]
            found[name] = "-" if None in results else _study.spread([each["free_running"] for each in results])
        return found | {"certified": "-" if None in answers or not answers else f"{sum(answers)} of {len(records)}"}

    def describe(name: str) -> str:
        found = [record["suites"][name] for record in members if not record["failed"]]
        return "; ".join(dict.fromkeys(each["what"] for each in found if each)) or "there are none"

    notes = "\n".join(f"- {name}: {describe(name)}" for name in names)
    return tables.sweep(members, sweeps.name, command, CAPTION, cells) + f"\n\n{notes}"


def run() -> None:
    """Run the sweep of the command line."""
    process.keep_programs()
    sweep(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(process.guard("generalization.py", run))
