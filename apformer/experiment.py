"""A run of the home task, from its settings to its figures: train, resume, evaluate.

runs/<name>/  config.json  metrics.jsonl  checkpoints/<step>/  evaluation.json  figures/
"""

import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from tqdm import tqdm
from tyro.conf import Positional

from apformer import checkpoint, model, recipes, runs, task
from apformer import evaluate as evaluation
from apformer.data import bayes
from apformer.errors import CHECKPOINT, DATA, USAGE, UserError
from apformer.fit import fit, initial_state
from apformer.log import read_metrics, score


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped; it ends bit for bit as if it had not been."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    step: int | None = None
    """A saved step to go on from, forgetting what came after it; the newest if not given."""


@dataclass(frozen=True)
class Evaluate:
    """Measure a run on held-out progressions: writes evaluation.json and figures."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    json: bool = False
    """Print one JSON object instead of a table."""


def train(settings):
    """Train a model as the settings say, in a new run directory, and evaluate it."""
    rows = task.read_rows(settings)
    abstract = jax.eval_shape(partial(initial_state, settings))
    size = sum(np.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(abstract.params)) * 3
    where = settings.training
    path = runs.create(where.recipe, where.run_dir, needs=size * (where.keep + 2) + 1e7)
    with runs.lock(path):
        data = task.describe_rows(settings, rows)
        config = {"flags": recipes.to_dict(settings), "versions": runs.versions(), "data": data}
        runs.write_json(path / "config.json", config)
        count = sum(np.prod(leaf.shape[where.members > 1 :], dtype=int) for leaf in jax.tree.leaves(abstract.params))
        print(f"{path}: {count:,} parameters, {where.steps:,} steps", file=sys.stderr)
        finish(path, settings, rows, initial_state(settings))


def resume(args):
    """Go on with a run from its newest valid checkpoint, or from a saved step."""
    path = runs.find(args.run)
    with runs.lock(path):
        settings, rows = load_settings(path), load_rows(path)
        abstract = jax.eval_shape(partial(initial_state, settings))
        step, state = checkpoint.load(path / "checkpoints", abstract, args.step)
        forget_after(path, step)
        print(f"{path}: resumed at step {step:,} of {settings.training.steps:,}", file=sys.stderr)
        finish(path, settings, rows, state)


def forget_after(path, step):
    """Take metrics and checkpoints back to a step, so that both are of one course of training."""
    for later in reversed(checkpoint.steps(path / "checkpoints")):
        if later > step:
            with runs.disk_errors(path):
                shutil.rmtree(path / "checkpoints" / str(later))
    runs.truncate_after(path / "metrics.jsonl", step)


def evaluate(args):
    """Evaluate the best checkpoint of a run; print the table, or JSON."""
    path = runs.find(args.run)
    result = evaluate_run(path, load_settings(path), load_rows(path), args.member)
    print(json.dumps(result) if args.json else evaluation.table(result))


def finish(path, settings, rows, state):
    """Train to the last step, then evaluate."""
    fit(path, settings, rows, state)
    print(evaluation.table(evaluate_run(path, settings, rows)))
    print(f'\n{path}\nTry it: apformer predict {shlex.quote(str(path))} "{task.hint(settings.data)}" --terms 3')


def load_settings(path):
    """The settings of a run. Raises UserError (exit CHECKPOINT) if its config.json is damaged."""
    return recipes.from_dict(_config(path).get("flags"), path / "config.json")


def load_rows(path):
    """The rows of a run. Raises UserError (exit DATA) if the dataset is not the one it was trained on."""
    settings = load_settings(path)
    rows = task.read_rows(settings)
    if task.describe_rows(settings, rows) != _config(path).get("data"):
        raise UserError(f"{settings.training.dataset} has changed since {path} was trained on it: restore it", DATA)
    return rows


def _config(path):
    config = runs.read_json(path / "config.json")
    if not isinstance(config, dict):
        raise UserError(f"{path / 'config.json'} holds no settings: restore the file, or train anew", CHECKPOINT)
    return config


def load_params(path, settings, member=None):
    """(params of one model, step, member) from the best checkpoint of a run, or its newest if none has a score."""
    members = settings.training.members
    if member is not None and not 0 <= member < members:
        raise UserError(f"--member {member} is out of range: {path} has members 0 to {members - 1}", USAGE)
    abstract = jax.eval_shape(partial(initial_state, settings))
    folder = path / "checkpoints"
    step, state = checkpoint.load(folder, abstract, checkpoint.best(folder))
    if members == 1:
        return state.params, step, 0
    if member is None:
        record = next(line for line in read_metrics(path) if line["step"] == step)
        least = (
            score(record["validation_exact"], record["validation_loss"])
            if "validation_loss" in record
            else record["loss"]
        )
        member = int(np.argmin(least))
    return jax.tree.map(lambda leaf: leaf[member], state.params), step, member


def evaluate_run(path, settings, rows, member=None):
    """evaluation.json and figures of a run's best checkpoint, from test rows no training step has seen."""
    from apformer.report import figures

    params, step, member = load_params(path, settings, member)
    test = task.test_rows(settings, rows)
    nats = bayes.bayes_nats(test, settings.data) if rows is None else None
    result = {"step": step, "member": member} | _measure(test, settings, params, nats)
    if rows is None:
        result["bayes_floor"] = bayes.bayes_floor(settings.data)
    else:  # a gap between the two says that the file was memorised
        result["trained"] = _measure(task.test_rows(settings, rows, "train"), settings, params)
    runs.write_json(path / "evaluation.json", result)
    pictures = {
        "loss": figures.loss_curve(read_metrics(path), task.validation_floor(settings) if rows is None else None),
        "accuracy_by_position": figures.accuracy_by_position(result),
        "accuracy_by_difference": figures.accuracy_by(result, "difference"),
        "accuracy_by_carries": figures.accuracy_by(result, "carries"),
    }
    with runs.disk_errors(path / "figures"):
        (path / "figures").mkdir(exist_ok=True)
        for name, figure in pictures.items():
            figure.savefig(path / "figures" / f"{name}.png")
    return result


def _measure(progressions, settings, params, bayes_nats=None):
    with tqdm(total=len(progressions.first_B), unit="row", desc="evaluate", disable=None, leave=False) as bar:
        return evaluation.evaluate(
            progressions,
            settings.data.digits,
            **bound(params, settings.model),
            bayes_nats=bayes_nats,
            progress=lambda done, _: bar.update(done - bar.n),
        )


def bound(params, cfg):
    """The model's functions with parameters and config bound, as evaluation and generation want them."""
    return {
        "apply": lambda tokens_BT: model.apply(params, tokens_BT, cfg),
        "extend": lambda tokens_BT, cache, lengths_B=None: model.extend(
            params, tokens_BT, cache, cfg, lengths_B=lengths_B
        ),
        "init_cache": lambda batch_size, length: model.init_cache(cfg, batch_size, length),
    }
