"""Measure a run on held-out data: exact match, loss or scores, whatever its task asks for."""

import json
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import files, tasks
from apformer.decoding.bind import bind
from apformer.flags import parse
from apformer.machine import devices
from apformer.report import figures, progress
from apformer.runs import directory
from apformer.runs.metrics import diverged, read_metrics, who_diverged
from apformer.runs.provenance import digest
from apformer.runs.restore import load_params, load_rows, load_settings
from apformer.settings import architecture_of


@dataclass(frozen=True)
class Evaluate:
    """Measure a run on held-out data: writes evaluation.json and figures."""

    run: Positional[str | None] = None
    """Run directory. The default is the latest run."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    json: bool = False
    """Print one JSON object instead of a table."""


def main(args):
    """Run the command with its arguments."""
    evaluate(parse(Evaluate, args, "apformer evaluate"))


def evaluate(args):
    """Evaluate the best checkpoint of a run; print the table, or JSON."""
    path = directory.find(args.run)
    found = evaluate_run(path, load_settings(path), load_rows(path), args.member)
    print(json.dumps(found.result) if args.json else found.table)


def evaluate_run(path, settings, rows, member=None):
    """The Evaluation of a run's best checkpoint: writes evaluation.json, figures, and what else the task writes."""
    task = tasks.load(settings.task)
    params, step, member = load_params(path, settings, member)
    model = bind(architecture_of(settings), params, settings.model, devices.mesh())
    with progress.bar(desc="evaluate", leave=False) as bar:
        found = task.evaluate(model, settings, rows, progress.reporter(bar))
    found = found._replace(result={"step": step, "member": member, "parameters_sha256": digest(params)} | found.result)
    records = read_metrics(path)
    if lost := diverged(records):
        table = f"{found.table}\n{who_diverged(lost)}"
        found = found._replace(result=found.result | {"diverged": lost}, table=table)
    files.write_json(path / "evaluation.json", found.result)
    for name, text in found.files.items():
        files.write_text(path / name, text)
    curve = figures.loss_curve(records, task.floor(settings, rows))
    figures.save(path / "figures", {"loss": curve} | found.figures)
    return found
