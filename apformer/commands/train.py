"""A run from its settings to its evaluation and, where it can have one, its certificate: train, resume, or either.

runs/<name>/  config.json  metrics.jsonl  checkpoints/<step>/  evaluation.json  figures/  certificate.json
              report.html  tokenizer.json (of a language)  translations.tsv (of pairs of sentences)
"""

import math
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import Positional

from apformer import files
from apformer.commands import certify, evaluate, report
from apformer.errors import USAGE, UserError
from apformer.runs import checkpoint, directory, provenance, settings_file
from apformer.runs.fit import fit, initial_state
from apformer.runs.restore import load_rows, load_settings
from apformer.tasks import choose


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped; it ends bit for bit as if it had not been."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    step: int | None = None
    """A saved step to go on from, forgetting what came after it; the newest if not given."""


def train(settings):
    """Train a model as the settings say, in a new run directory, and evaluate it."""
    settings, rows = choose.read(settings)
    path = _create(settings)
    with directory.lock(path):
        _describe(path, settings, rows)
        finish(path, settings, rows, initial_state(settings))


def keep(settings, params):
    """The path of a new run directory that holds these parameters, as if one step of training had led to them."""
    path = _create(settings)
    with directory.lock(path):
        _describe(path, settings, choose.module(settings.data).read_rows(settings))
        state = jax.jit(initial_state, static_argnums=0)(settings)  # whose parameters give way to those given
        state = state._replace(step=jnp.ones_like(state.step), params=params)
        with checkpoint.Checkpoints(path / "checkpoints") as checkpoints:
            checkpoints.save(1, state)
        files.append_record(path / "metrics.jsonl", {"step": 1, "loss": None, "exact": None})
    return path


def _create(settings):
    """A new directory on a disk that has room for the run."""
    abstract, where = jax.eval_shape(partial(initial_state, settings)), settings.training
    size = sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(abstract.params)) * 3
    return directory.create(where.recipe, where.run_dir, needs=size * (where.keep + 2) + 1e7)


def _describe(path, settings, rows):
    """config.json of a new run."""
    params, where = jax.eval_shape(partial(initial_state, settings)).params, settings.training
    data = choose.module(settings.data).describe_rows(settings, rows)
    config = {"flags": settings_file.to_dict(settings), "versions": provenance.versions(), "data": data}
    files.write_json(path / "config.json", config)
    if isinstance(settings.data, choose.LANGUAGE):
        files.write_text(path / "tokenizer.json", rows["tokenizer"].to_json())
    count = sum(np.prod(leaf.shape[where.members > 1 :], dtype=int) for leaf in jax.tree.leaves(params))
    print(f"{path}: {count:,} parameters, {where.steps:,} steps", file=sys.stderr)


def resume(args):
    """Go on with a run from its newest valid checkpoint, or from a saved step."""
    path = directory.find(args.run)
    with directory.lock(path):
        settings, rows = load_settings(path), load_rows(path)
        abstract = jax.eval_shape(partial(initial_state, settings))
        step, state = checkpoint.load(path / "checkpoints", abstract, args.step)
        forget_after(path, step)
        print(f"{path}: resumed at step {step:,} of {settings.training.steps:,}", file=sys.stderr)
        finish(path, settings, rows, state)


def train_or_resume(settings):
    """Train in the directory training.run_dir of the settings, or go on with their run that it holds: its Path.

    One that was stopped before its first checkpoint begins anew; one that is done is examined again. Raises UserError
    (exit USAGE) if the directory holds a run of other settings.
    """
    path = Path(settings.training.run_dir)
    if not (path / "config.json").is_file():
        train(settings)
        return path
    settings, rows = choose.read(settings)
    kept = load_settings(path)
    if settings != replace(kept, training=replace(kept.training, run_dir=settings.training.run_dir)):
        raise UserError(f"{path} holds a run of other settings, see its config.json: give another --run_dir", USAGE)
    if checkpoint.steps(path / "checkpoints"):
        resume(Resume(str(path)))
        return path
    with directory.lock(path):
        forget_after(path, 0)
        _describe(path, settings, rows)
        finish(path, settings, rows, initial_state(settings))
    return path


def forget_after(path, step):
    """Take metrics and checkpoints back to a step, so that both are of one course of training."""
    for later in reversed(checkpoint.steps(path / "checkpoints")):
        if later > step:
            with files.disk_errors(path):
                shutil.rmtree(path / "checkpoints" / str(later))
                for name in ("evaluation.json", "certificate.json"):  # of parameters that may be among the forgotten
                    (path / name).unlink(missing_ok=True)
    files.truncate_after(path / "metrics.jsonl", step)


def finish(path, settings, rows, state):
    """Train to the last step, evaluate, certify what may be exact, and write it all into one page."""
    fit(path, settings, rows, state)
    result = evaluate.evaluate_run(path, settings, rows)
    print(evaluate.evaluation_table(result))
    if not isinstance(settings.data, choose.LANGUAGE):
        print(certificate(path, settings, result))
    print(f"\n{_page(path, settings, rows)}")
    print(f"{path}\nTry it: {choose.module(settings.data).hint(settings.data, shlex.quote(str(path)))}")


def _page(path, settings, rows):
    """Where the page of a run is; or, since nothing that goes wrong with a picture may spoil a run, what went wrong."""
    try:
        return report.write(path, settings, rows)
    except Exception as error:
        return f"No page: {error}; mend that, then write it with `apformer report {shlex.quote(str(path))}`"


def certificate(path, settings, result):
    """The certificate of a run that its evaluation found no fault with, as a table; or why there is none."""
    if result["exact_teacher_forced"] is None:
        return "No certificate: no term can be predicted, since no progression has a third."
    if result["exact_teacher_forced"] < 1:
        return "No certificate: some of these terms are wrong. `apformer certify` finds all that are."
    try:
        return certify.certificate_table(certify.certify_run(path, settings))
    except UserError as error:
        if error.exit_code != USAGE:
            raise
        return f"No certificate yet: {error}"
