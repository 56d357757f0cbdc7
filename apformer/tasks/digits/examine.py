"""What a run on terms of many widths is worth: exact match by width, and the certificate for every width."""

import time

from apformer import files
from apformer.decoding.bind import bound
from apformer.errors import USAGE, UserError
from apformer.report import progress
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import load_params
from apformer.tasks.digits import certificate, evaluation


def evaluate_run(path, settings, member=None):
    """evaluation.json and figures of a run's best checkpoint, on widths of training and on wider terms."""
    from apformer.report import figures

    params, step, member = load_params(path, settings, member)
    with progress.bar(unit="suite", desc="evaluate", leave=False) as bar:

        def report(done, total):
            bar.total = total
            bar.update(done - bar.n)

        found = evaluation.evaluate(
            settings.data, settings.drawing.test_sequences, **bound(params, settings.model), progress=report
        )
    result = {"step": step, "member": member} | found
    files.write_json(path / "evaluation.json", result)
    pictures = {"loss": figures.loss_curve(read_metrics(path)), "accuracy_by_width": figures.accuracy_by_width(result)}
    figures.save(path / "figures", pictures)
    return result


def certify_run(path, settings, member=None, step=None):
    """(certificate, parameters) of a run's best checkpoint, or of a saved step; the first says what it proves.

    Raises UserError (exit USAGE) if the logits of the model depend on more than can be enumerated.
    """
    reason = unbounded(settings)
    if reason:
        claim = f"what can be claimed of {path} is what `apformer evaluate {path}` finds, width by width"
        raise UserError(f"{reason}, so its contexts are too many to ask: {claim}", USAGE)
    params, step, member = load_params(path, settings, member, step)
    begun = time.monotonic()
    with progress.bar(unit="context", unit_scale=True, desc="certify") as bar:

        def report(done, total):
            bar.total = total
            bar.update(done - bar.n)

        result = certificate.certify(**bound(params, settings.model), progress=report)
    return result | {"seconds": round(time.monotonic() - begun, 1), "step": step, "member": member}, params


def unbounded(settings):
    """Why a model's logits depend on more than the certificate asks; None if they do not."""
    cfg = settings.model
    if settings.data.order == "msb":
        return "a digit depends on carries from all places below it, which are written after it"
    options = cfg.position_options
    if cfg.position != "periodic" or options.near != 1 or options.span_heads or cfg.window or cfg.n_layers > 2:
        return "it sees other tokens than two layers of --position periodic --near 1 do"
    return None
