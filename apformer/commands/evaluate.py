"""What a trained run is worth: its evaluation on held-out progressions, and its certificate."""

import json
from dataclasses import dataclass

from tyro.conf import Positional

from apformer import files
from apformer.decoding.bind import bound
from apformer.report import progress
from apformer.runs import directory
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import load_params, load_rows, load_settings
from apformer.tasks.digits import evaluation as wide_evaluate
from apformer.tasks.digits import examine, generator
from apformer.tasks.progressions import bayes, evaluation, training
from apformer.tasks.text import corpus as text
from apformer.tasks.text import evaluation as text_examine
from apformer.tasks.translation import corpus
from apformer.tasks.translation import evaluation as pair_examine


@dataclass(frozen=True)
class Evaluate:
    """Measure a run on held-out progressions: writes evaluation.json and figures."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    json: bool = False
    """Print one JSON object instead of a table."""


def evaluate(args):
    """Evaluate the best checkpoint of a run; print the table, or JSON."""
    path = directory.find(args.run)
    result = evaluate_run(path, load_settings(path), load_rows(path), args.member)
    print(json.dumps(result) if args.json else evaluation_table(result))


def evaluate_run(path, settings, rows, member=None):
    """evaluation.json and figures of a run's best checkpoint, from test rows no training step has seen."""
    from apformer.report import figures

    if isinstance(settings.data, generator.Config):
        return examine.evaluate_run(path, settings, member)
    if isinstance(settings.data, text.Config):
        return text_examine.evaluate_run(path, settings, rows, member)
    if isinstance(settings.data, corpus.Config):
        return pair_examine.evaluate_run(path, settings, rows, member)
    params, step, member = load_params(path, settings, member)
    test = training.test_rows(settings, rows)
    nats = bayes.bayes_nats(test, settings.data) if rows is None else None
    result = {"step": step, "member": member} | _measure(test, settings, params, nats)
    if rows is None:
        result["bayes_floor"] = bayes.bayes_floor(settings.data)
    else:  # a gap between the two says that the file was memorised
        result["trained"] = _measure(training.test_rows(settings, rows, "train"), settings, params)
    files.write_json(path / "evaluation.json", result)
    pictures = {
        "loss": figures.loss_curve(read_metrics(path), training.validation_floor(settings) if rows is None else None),
        "accuracy_by_position": figures.accuracy_by_position(result),
        "accuracy_by_difference": figures.accuracy_by(result, "difference"),
        "accuracy_by_carries": figures.accuracy_by(result, "carries"),
    }
    figures.save(path / "figures", pictures)
    return result


def _measure(progressions, settings, params, bayes_nats=None):
    with progress.bar(total=len(progressions.first_B), unit="row", desc="evaluate", leave=False) as bar:
        return evaluation.evaluate(
            progressions,
            settings.data.digits,
            **bound(params, settings.model),
            bayes_nats=bayes_nats,
            progress=lambda done, _: bar.update(done - bar.n),
        )


def evaluation_table(result):
    """An evaluation for a terminal."""
    kinds = {"widths": wide_evaluate, "perplexity": text_examine, "bleu": pair_examine}
    return next((kind for name, kind in kinds.items() if name in result), evaluation).table(result)
