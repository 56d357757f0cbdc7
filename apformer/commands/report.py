"""Write one offline page that shows a run and its model: apformer report RUN.

It shows training, evaluation and certificate, and holds the model with its weights, so that a reader can try it. The
page names what the run lacks.
"""

from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optax

from apformer import files, tasks
from apformer.analysis import pca
from apformer.analysis.certificate import header
from apformer.commands import Run
from apformer.errors import UserError, tell
from apformer.layers.leaves import named
from apformer.report import sections, template
from apformer.report.sections import attempt
from apformer.runs import directory, provenance, restore
from apformer.runs.metrics import diverged, read_metrics
from apformer.settings import Settings

LARGEST = 24_000_000  # bytes of weights in a page
MOST_WORDS = 1024  # tokens whose embeddings are drawn
IDENTITY = {"step", "member", "parameters_sha256"}  # keys of a result that say which parameters it is of
CERTIFICATE = IDENTITY | {"certified", "claim", "contexts", "errors", "smallest_margin"}


@dataclass(frozen=True)
class Report:
    """Write report.html: one offline page that shows a run and lets you try its model.

    Attributes:
        run: Run directory. The default is the latest run.
        member: Number of a member of a population. The default is the best on validation rows.
        weights: Put the model into the page. With --no_weights the page shows only measurements, and is small.
    """

    run: Run = None
    member: int | None = None
    weights: bool = True


def report(args: Report) -> None:
    """Write the page of a run and print where it is."""
    path = directory.find(args.run)
    settings = restore.load_settings(path)
    missing = {}
    rows = attempt(missing, "probe", lambda: restore.load_rows(path))
    print(write(path, settings, rows, args.member, args.weights, missing))


def write(
    path: Path,
    settings: Settings,
    rows: Any,
    member: int | None = None,
    weights: bool = True,
    missing: dict[str, str] | None = None,
) -> str:
    """Write report.html of a run's best checkpoint, and return a sentence that says where.

    Args:
        path: Run directory.
        settings: Its settings.
        rows: Its rows; None if they cannot be read.
        member: Number of a member of a population; None for the best.
        weights: Whether to put the model into the page.
        missing: {part: reason} of what the page cannot show; None for nothing.
    """
    params, step, member = restore.load_params(path, settings, member)
    size = 4 * optax.tree.size(params)
    refusal, fits = template.refusal(settings.architecture, settings.model), size <= LARGEST
    if not fits:
        tell(f"{path}: the page is without the model, whose weights are {size / 1e6:,.0f} MB")
        refusal = f"The model is too large for a page: {size / 1e6:,.0f} MB of weights."
    if not weights:
        refusal = "The page was written without the model (--no_weights)."
    missing = missing or {}
    if refusal:
        missing["weights"] = refusal
    data = _of_run(path, settings, params, step, member, missing)
    runs_model = weights and fits and "probe" not in missing
    data |= _of_task(path, settings, rows, params if runs_model else None, data)
    page = template.fill(data, None if refusal else named(params))
    files.write_text(path / "report.html", page)
    return f"{path / 'report.html'}: open it in a browser ({len(page) / 1e6:,.1f} MB)"


def _of_run(path: Path, settings: Settings, params: Any, step: int, member: int, missing: dict[str, str]) -> dict:
    """Return the part of the page's data that every run has."""
    architecture = settings.architecture
    flags = directory.recorded(path, "flags")
    seed = settings.training.seed + member
    if members := directory.recorded(path, "members", list):  # of a part of a sweep
        seed, flags["optimizer"] = members[member]
    metrics = attempt(missing, "metrics", lambda: read_metrics(path))
    data = {
        "name": path.resolve().name,
        "architecture": architecture,
        "model": asdict(settings.model),
        "settings": flags,
        "versions": directory.recorded(path, "versions"),
        "source": directory.recorded(path, "data"),
        "parameters": optax.tree.size(params),
        "parameters_sha256": provenance.digest(params),
        "step": step,
        "member": member,
        "seed": seed,
        "missing": missing,
        "metrics": metrics,
        "diverged": diverged(metrics or []),
        "embedding": _plane(architecture, params),
    }
    certificate = _of_this_model(path / "certificate.json", data, "certify", header(settings), CERTIFICATE)
    return data | {"certificate": certificate}


def _plane(architecture: str, params: dict) -> dict[str, list] | None:
    """Return the embeddings in the plane of their first two components, and its shares of the variance.

    None for an architecture that the page cannot run, and for more than MOST_WORDS tokens.
    """
    table_VD = params.get("encoder", params)["embedding"]["table"] if architecture in template.RUNS else ()
    if not 0 < len(table_VD) <= MOST_WORDS:
        return None
    points_V2, shares_2 = pca.project(table_VD)
    return {"points": points_V2.round(6).tolist(), "shares": shares_2.tolist()}


def _of_task(path: Path, settings: Settings, rows: Any, params: Any, data: dict) -> dict:
    """Return the page's data by the task, see `report.sections`. params: None if the model is not to be run."""
    task = tasks.of(settings)
    evaluation = _of_this_model(path / "evaluation.json", data, "evaluate", {})
    try:
        shown = sections.check(task.page(settings, rows, params, evaluation, path))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
        if evaluation is None:
            raise
        damage = f"evaluation.json is damaged or of another version ({error!r})"
        data["missing"]["evaluation"] = f"{UserError(damage)}: run `apformer evaluate` again."
        shown = sections.check(task.page(settings, rows, params, None, path))
    return shown | {"missing": shown.get("missing", {}) | data["missing"]}


def _of_this_model(file: Path, data: dict, command: str, expected: dict, keys: Set[str] = IDENTITY) -> dict | None:
    """Return the content of a result file of the run if it has the keys and is of these parameters, else None.

    The fault is added to data["missing"]. command: the one that writes the file. expected: a part of its content.
    """
    missing = data["missing"]
    result = attempt(missing, file.stem, lambda: files.read_json(file)) if file.exists() else None
    if result is None:
        return None
    if not files.has(result, {}) or not keys <= result.keys() or result | expected != result:
        fault = "is damaged or of another version"
    elif result["parameters_sha256"] != data["parameters_sha256"]:
        fault = f"is of other parameters, of step {result['step']} and member {result['member']}"
    else:
        return result
    missing[file.stem] = f"{file.name} {fault}: run `apformer {command}` again."
    return None
