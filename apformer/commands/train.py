"""Train a model, then evaluate it as its task does.

A run goes from its settings to its evaluation and, where it can have one, its certificate:

runs/<name>/  config.json  metrics.jsonl  checkpoints/<step>/  evaluation.json  figures/  certificate.json
              report.html  missed.jsonl (of --until certified)  tokenizer.json (of a text or a translator)
              generation_config.json (of a fine-tuned GPT-2)  translations.tsv  letters.txt (of a translator)
              vocabulary.tsv (of words)
"""

import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from apformer import files, tasks
from apformer.commands import certify, evaluate, report
from apformer.errors import DATA, USAGE, UserError, tell, typed
from apformer.flags import require_whole
from apformer.formats import gpt2
from apformer.machine import devices, processes
from apformer.report import progress, tables, trackers
from apformer.runs import checkpoint, directory, provenance, recipes
from apformer.runs.begin import begin
from apformer.runs.fit import abstract_state, fit, initial_state, validation_loss
from apformer.runs.metrics import finite_mean, note_missed, read_metrics, read_missed
from apformer.runs.restore import load_params, load_rows, load_settings, located
from apformer.settings import Settings, with_part
from apformer.tasks.settings_file import check, more_steps, require_storable
from apformer.tasks.text import folders
from apformer.train import TrainState


def main(args: list[str]) -> None:
    """Run the command with its arguments."""
    train(recipes.parse(args))


def train(settings: Settings) -> Path:
    """Train a model as the settings say, in a new run directory, evaluate it, and return the directory."""
    # Raises UserError if the rows do not divide over the devices.
    devices.mesh(settings.training.members, settings.training.batch_size)
    settings, rows = tasks.of(settings).load(settings)
    start_params = _start_params(settings)
    path = _create(settings)
    with directory.lock(path):
        begin(path, settings, rows, start_params)
        state = initial_state(settings, start_params)
        if start_params is not None:
            loss = finite_mean(validation_loss(settings, rows, state))
            tell(f"validation loss before the first step: {loss:.4f}")
        finish(path, settings, rows, state)
    return path


def _start_params(settings: Settings) -> Any:
    """Return the parameters of the model in --init_from, or None."""
    folder = tasks.of(settings).init_from(settings)
    if folder is None:
        return None
    if os.path.isdir(folder) and folders.is_gpt2(folder):
        return gpt2.load(folder)[1]
    path = directory.find(folder)
    return load_params(path, load_settings(path))[0]


def keep(settings: Settings, params: Any, rows: Any = None, scores: Any = ()) -> Path:
    """Save parameters as a new run of one training step, and return its directory.

    rows: those of the settings; None where rows are generated. scores: one for each member; the best has the lowest.
    """
    path = _create(settings)
    with directory.lock(path):
        begin(path, settings, rows)
        state = initial_state(settings)  # its parameters are replaced
        mean = None if state.mean is None else params
        state = state._replace(step=jnp.ones_like(state.step), params=params, mean=mean)
        with checkpoint.Checkpoints(path / "checkpoints") as checkpoints:
            checkpoints.save(1, state, scores)
        files.append_record(path / "metrics.jsonl", {"step": 1})
    return path


def _create(settings: Settings) -> Path:
    """Make the directory of a run, if its disk has room. A process that does not write gets a temporary one."""
    require_storable(settings)
    run = settings.training
    if jax.process_index():
        return processes.scratch()
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(abstract_state(settings)))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > memory:
        takes = f"the model and its optimizer take {size / 1e6:,.0f} MB, and this machine has {memory / 1e6:,.0f} MB"
        raise UserError(f"{takes} of memory: give smaller sizes, such as --d_model, --n_layers or --members")
    return directory.create(run.recipe, run.run_dir, needs=size * (run.keep + 2) + 1e7)


def train_or_resume(settings: Settings) -> Path:
    """Train in the directory training.run_dir, or resume the run of the same settings there, and return its Path.

    A run that is done is evaluated again. Raises UserError (exit USAGE) if the directory holds a run of other settings.
    """
    run_dir = settings.training.run_dir
    if run_dir is None or not (Path(run_dir) / "config.json").is_file():
        return train(settings)
    path = Path(run_dir)
    settings, _ = tasks.of(settings).load(settings)
    recorded = load_settings(path)
    if settings != with_part(recorded, "training", run_dir=run_dir):
        raise UserError(f"{path} holds a run of other settings, see its config.json: give another --run_dir")
    go_on(path)
    return path


def go_on(path: Path, step: int | None = None, steps: int | None = None) -> None:
    """Resume a run from a saved step, or from the newest sound one; start it anew if none was saved yet.

    steps: new number of steps of the run, or None.
    """
    with directory.lock(path):
        provenance.require_environment(path)
        rows, begins = load_rows(path), step is None and not directory.saved(path)
        if begins and (path / "../sweep.json").exists():  # which knows the members
            raise UserError(f"{path} is a part of a sweep: give its flags again, with its --run_dir")
        settings = located(path) if begins else load_settings(path)
        if steps is not None:
            settings = with_part(settings, "training", steps=steps)
            check(settings)
        if begins:
            tell(f"{path} stopped before its first checkpoint: it begins anew")
            start_params = _start_params(settings)
            recorded = directory.recorded(path, "init_from_sha256", str)
            if start_params is not None and provenance.digest(start_params) != recorded:
                raise UserError(f"the model that {path} started from (--init_from) has changed: restore it", DATA)
            begin(path, settings, rows, start_params)
            step = 0
            state = initial_state(settings, start_params)
        else:
            step, state = checkpoint.load(path / "checkpoints", abstract_state(settings), step)
            if steps is not None:
                require_whole("steps", settings.training, step + 1)
                config = files.read_json(path / "config.json")
                config["flags"]["training"]["steps"] = steps
                files.write_json(path / "config.json", config)
                trackers.renew(path / settings.training.log_to, step)  # another schedule
            tell(f"{path}: resumed at step {step:,} of {settings.training.steps:,}")
        directory.forget_after(path, step)
        finish(path, settings, rows, state)


def finish(path: Path, settings: Settings, rows: Any, state: TrainState) -> None:
    """Train to the end, evaluate, certify if the task can, and write the page of the run.

    All processes train; the first does the rest.
    """
    task = tasks.of(settings)
    proofs = []
    run = settings.training
    ends = run.until == "certified" and run.members == run.average == 1 and hasattr(task, "contexts")
    fit(path, settings, rows, state, _prover(path, settings, proofs) if ends else None)
    if jax.process_index():
        return
    evaluation = evaluate.evaluate_run(path, settings, rows)
    _tell(evaluation.table)
    evaluate.save(path, evaluation)
    evaluate.draw(path, settings, rows, evaluation)
    if proofs:
        _tell(tables.certificate(proofs[0]))
    elif hasattr(task, "contexts"):
        _tell(certificate(path, settings, evaluation.doubt))
    _tell(f"\n{_page(path, settings, rows)}")
    _tell(f"{path}\nTry it: {task.example(settings, shlex.quote(str(path)))}")


def _tell(text: str) -> None:
    """Print a text; if nobody reads it, the process says so as it ends."""
    with suppress(OSError):
        print(text, flush=True)


def _prover(path: Path, settings: Settings, proofs: list[dict]) -> Callable[[int], bool]:
    """Return proven(step) for `fit`: whether a step is certified. Its certificate is appended to `proofs`."""
    begun = time.monotonic()
    hopeless = []
    trains_on_missed = hasattr(tasks.of(settings), "missed")

    def proven(step: int) -> bool:
        # Skip a step with a wrong validation row, and one in missed.jsonl: its certificate failed before a stop. A
        # step whose line the disk has lost is tried.
        lines = [record for record in (*read_metrics(path), *read_missed(path)) if record["step"] == step]
        if hopeless or any((record.get("validation_exact") or 0) < 1 for record in lines):
            return False
        try:
            result = certify.certify_run(path, settings, step=step, hasty=True)
        except UserError as error:
            if error.exit_code != USAGE:
                raise
            hopeless.append(error)  # too many contexts, at this step and at all others
            return False
        if not (result["certified"] or result.get("screened")):
            note_missed(path, step, result["missed"] if trains_on_missed else [])
            progress.write(f"step {step:,}: not certified yet")
            return False
        word = "proven" if result["certified"] else "screened"
        progress.write(f"{word} at step {step:,}, after {time.monotonic() - begun:,.0f} s")
        proofs.append(result)
        return True

    return proven


def _page(path: Path, settings: Settings, rows: Any) -> str:
    """Write the page of a run, and return a sentence that says where; on any error, one that names it."""
    try:
        return report.write(path, settings, rows)
    except Exception as error:
        return f"No page: {error}; fix that, then write it with {typed('report', path)}"


def certificate(path: Path, settings: Settings, doubt: str | None = None) -> str:
    """Certify a run, and return the table; or a sentence that says why there is no certificate."""
    if doubt is not None:
        return f"No certificate. {doubt}".replace("RUN", shlex.quote(str(path)))
    try:
        result = certify.certify_run(path, settings)
    except UserError as error:
        if error.exit_code != USAGE:
            raise
        return f"No certificate yet: {error}"
    return tables.certificate(result) + f"\n\n{more_steps(settings, path)}" * (result["errors"] > 0)
