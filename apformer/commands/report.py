"""Write one offline page that shows a run and its model: apformer report RUN.

What training, evaluation and certificate have found, and the model itself with its weights, so that whoever opens the
page can play with it. What a run does not have, the page says is missing.
"""

import sys
from dataclasses import asdict, dataclass

import jax
from tyro.conf import Positional

from apformer import files, tasks
from apformer.analysis import pca
from apformer.errors import CHECKPOINT, UserError
from apformer.flags import parse
from apformer.formats.weights import named
from apformer.report import sections, template, twin
from apformer.report.sections import attempt
from apformer.runs import directory, provenance, restore
from apformer.runs.metrics import diverged, read_metrics

LARGEST = 24_000_000  # bytes of weights in a page
MOST_WORDS = 1024  # tokens of a vocabulary whose embeddings are drawn
CERTIFICATE = {"format", "certified", "claim", "contexts", "errors", "smallest_margin"}  # as the page reads them


@dataclass(frozen=True)
class Report:
    """Write report.html: one offline page that shows a run and lets you try its model."""

    run: Positional[str | None] = None
    """Run directory. The default is the latest run."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    weights: bool = True
    """Put the model into the page. With --no_weights the page shows only measurements, and is small."""


def main(args):
    """Run the command with its arguments."""
    report(parse(Report, args, "apformer report"))


def report(args):
    """Write the page of a run and say where it is. Raises UserError, also for a run of a newer version."""
    path = directory.find(args.run)
    _refuse_newer(path)
    settings, missing = restore.load_settings(path), {}
    rows = attempt(missing, "probe", lambda: restore.load_rows(path))
    print(write(path, settings, rows, args.member, args.weights, missing))


def write(path, settings, rows, member=None, weights=True, missing=None):
    """report.html of a run's best checkpoint, from the rows it was trained on; returns a sentence that says where.

    missing: {what: why} the page cannot show.
    """
    params, step, member = restore.load_params(path, settings, member)
    missing = dict(missing or {})
    size = 4 * sum(leaf.size for leaf in jax.tree.leaves(params))
    if size > LARGEST:
        print(f"{path}: the page is without the model, whose weights are {size / 1e6:,.0f} MB", file=sys.stderr)
    refusal = _refusal(settings, weights, size)
    if refusal:
        missing["weights"] = refusal
    ask = weights and size <= LARGEST and "probe" not in missing
    data = _of_run(path, settings, params, step, member, missing)
    data |= _of_task(tasks.load(settings.task), path, settings, rows, params if ask else None, data)
    whole = template.fill(data, None if refusal else named(params))
    files.write_text(path / "report.html", whole)
    return f"{path / 'report.html'}: open it in a browser ({len(whole) / 1e6:,.1f} MB)"


def _refusal(settings, weights, size):
    """Why the page comes without the model, in a sentence; None if it has the model."""
    if not weights:
        return "The page was written without the model (--no-weights)."
    if size > LARGEST:
        return f"The model is too large for a page: {size / 1e6:,.0f} MB of weights."
    return twin.refusal(settings.architecture, settings.model)


def _of_run(path, settings, params, step, member, missing):
    """Return what a page says of every run, whatever its task."""
    config, architecture = files.read_json(path / "config.json"), settings.architecture
    data = {
        "name": path.resolve().name,
        "architecture": architecture,
        "model": asdict(settings.model),
        "settings": config["flags"],
        "versions": _dict(config.get("versions")),
        "source": _dict(config.get("data")),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "parameters_sha256": provenance.digest(params),
        "step": step,
        "member": member,
        "missing": missing,
        "metrics": attempt(missing, "metrics", lambda: read_metrics(path)),
        "embedding": pca.plane(twin.embedding(architecture, params), MOST_WORDS),
    }
    data["diverged"] = diverged(data["metrics"] or [])
    return data | {"certificate": _of_this_model(path / "certificate.json", data, CERTIFICATE)}


def _of_task(task, path, settings, rows, params, data):
    """Return what a page says of the task of a run, see `report.sections`; params: None where it asks no model."""
    evaluation = _of_this_model(path / "evaluation.json", data, task.EVALUATION)
    try:
        shown = sections.check(task.page(settings, rows, params, evaluation, path))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
        if evaluation is None:
            raise
        damage = f"evaluation.json is damaged or of another version ({error!r})"
        data["missing"]["evaluation"] = f"{UserError(damage, CHECKPOINT)}: run `apformer evaluate` again."
        shown = sections.check(task.page(settings, rows, params, None, path))
    return shown | {"missing": data["missing"] | shown.get("missing", {})}


def _of_this_model(file, data, keys):
    """Return what a file of the run says, if it is there, sound, and of these parameters; keys: what it must hold."""
    if not file.exists():
        return None
    found = attempt(data["missing"], file.stem, lambda: files.read_json(file))
    if found is None:
        return None
    absent = sorted(keys - _dict(found).keys())
    if absent:
        again = f"run `apformer {_COMMANDS[file.stem]}` again"
        data["missing"][file.stem] = f"{file.name} is damaged or of another version ({absent[0]}): {again}."
        return None
    whose = None
    if (found.get("step"), found.get("member", 0)) != (data["step"], data["member"]):
        whose = f"step {found.get('step')}, member {found.get('member', 0)}"
    elif found.get("parameters_sha256") != data["parameters_sha256"]:
        whose = "other parameters"
    if whose is not None:
        data["missing"][file.stem] = f"{file.name} is of {whose}: run `apformer {_COMMANDS[file.stem]}` again."
        return None
    return found


_COMMANDS = {"evaluation": "evaluate", "certificate": "certify"}


def _refuse_newer(path):
    """Raises UserError (exit CHECKPOINT) if a run is of a later version of apformer than this."""
    theirs = str(_dict(_dict(files.read_json(path / "config.json")).get("versions")).get("apformer"))
    ours = str(provenance.versions()["apformer"])
    if _numbers(ours) and _numbers(theirs) > _numbers(ours):
        sentence = f"{path} was written by apformer {theirs}, and this is {ours}: install the newer one to read it"
        raise UserError(sentence, CHECKPOINT)


def _dict(value):
    """A value from JSON, if it is a dict, or an empty one."""
    return value if isinstance(value, dict) else {}


def _numbers(version):
    return [int(part) for part in version.split(".") if part.isdecimal() and len(part) < 10]
