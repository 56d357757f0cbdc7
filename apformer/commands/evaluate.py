"""What a trained run is worth: its evaluation on held-out progressions, and its certificate."""

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass

import jax
import numpy as np
from tqdm import tqdm
from tyro.conf import Positional

from apformer.errors import USAGE, UserError
from apformer.runs import directory, recipes
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import bound, load_params, load_rows, load_settings
from apformer.tasks import choose
from apformer.tasks.digits import certificate, examine, generator
from apformer.tasks.digits import evaluation as wide_evaluate
from apformer.tasks.progressions import bayes, evaluation, training
from apformer.tasks.progressions import certificate as certification
from apformer.tasks.text import corpus as text
from apformer.tasks.text import evaluation as text_examine
from apformer.tasks.translation import corpus
from apformer.tasks.translation import evaluation as pair_examine

PATIENCE = 1800  # seconds that an enumeration may take unasked
PARTIAL = "certificate.partial.json"
BATCH_TOKENS = {"cpu": 4096}  # what its caches hold; an accelerator wants more


@dataclass(frozen=True)
class Evaluate:
    """Measure a run on held-out progressions: writes evaluation.json and figures."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    json: bool = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class Certify:
    """Ask a run to continue every progression there is: writes certificate.json."""

    run: Positional[str | None] = None
    """Run directory; the latest if not given."""
    member: int | None = None
    """Member of a population; the best on validation if not given."""
    step: int | None = None
    """A saved step; the best if not given, which of a population is the best on the mean."""
    yes: bool = False
    """Go on even if it takes longer than 30 minutes; stopped, it continues where it was."""
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
    directory.write_json(path / "evaluation.json", result)
    pictures = {
        "loss": figures.loss_curve(read_metrics(path), training.validation_floor(settings) if rows is None else None),
        "accuracy_by_position": figures.accuracy_by_position(result),
        "accuracy_by_difference": figures.accuracy_by(result, "difference"),
        "accuracy_by_carries": figures.accuracy_by(result, "carries"),
    }
    figures.save(path / "figures", pictures)
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


def certify(args):
    """Enumerate every context of a run's best checkpoint; print the certificate, or JSON."""
    path = directory.find(args.run)
    result = certify_run(path, load_settings(path), args.member, np.inf if args.yes else PATIENCE, args.step)
    print(json.dumps(result) if args.json else certificate_table(result))


def certify_run(path, settings, member=None, patience=PATIENCE, step=None):
    """certificate.json of a run's best checkpoint, or of a saved step.

    What was enumerated before a stop is kept in certificate.partial.json, and gone on from. Raises UserError (exit
    USAGE) if it would take more than `patience` seconds, or if no progression has a predictable term.
    """
    if isinstance(settings.data, choose.LANGUAGE):
        raise UserError(f"{path} is of a language, where nothing is right or wrong: see `apformer evaluate`", USAGE)
    if isinstance(settings.data, generator.Config):
        result, params = examine.certify_run(path, settings, member, step)
        result |= {"parameters_sha256": digest(params)} | _surroundings(params)
        directory.write_json(path / "certificate.json", result)
        return result
    params, step, member = load_params(path, settings, member, step)
    functions, tokens = bound(params, settings.model), recipes.module(settings.model).reach(settings.model)
    groups = certification.plan(settings.data, tokens)
    if not groups:
        raise UserError(f"no progression of {path} has a third term: there is nothing to certify", USAGE)
    if tokens is None:
        extent = f"up to {certification.most_terms(settings.data, None)} terms"
        print(f"{path} looks at all that it has read: what can be claimed ends with rows of {extent}", file=sys.stderr)
    directory.preflight(path, 0)  # lest the disk refuse what took an hour
    identity = {"step": step, "member": member, "parameters_sha256": digest(params)} | _surroundings(params)
    identity |= {"model": asdict(settings.model), "data": asdict(settings.data), "rows": [len(g) for g in groups]}
    tally, seconds = _enumerate(path, settings.data, tokens, groups, functions["apply"], identity, patience)
    result = certification.conclude(settings.data, tokens, tally, groups, **functions)
    result = result | {"seconds": round(seconds, 1)} | identity
    directory.write_json(path / "certificate.json", result)
    (path / PARTIAL).unlink(missing_ok=True)
    return result


def evaluation_table(result):
    """An evaluation for a terminal."""
    kinds = {"widths": wide_evaluate, "perplexity": text_examine, "bleu": pair_examine}
    return next((kind for name, kind in kinds.items() if name in result), evaluation).table(result)


def certificate_table(result):
    """A certificate for a terminal."""
    return (certificate if "parts" in result else certification).table(result)


def _enumerate(path, cfg, tokens, groups, apply, identity, patience):
    """(tally, seconds) of the whole enumeration, kept every half minute in the run directory."""
    total = certification.count(cfg, tokens)
    kept = _kept(path / PARTIAL, identity)
    tally, begun, first = kept["tally"], time.monotonic(), None
    before, saved = certification.asked(tally), begun

    def keep():
        seconds = kept["seconds"] + time.monotonic() - begun
        directory.write_json(path / PARTIAL, {"identity": identity, "tally": tally, "seconds": seconds})
        return seconds

    batch_tokens = BATCH_TOKENS.get(jax.default_backend(), 2**20)
    visits = certification.enumerate_contexts(groups, apply, tally, batch_tokens)
    with tqdm(total=total, initial=before, unit="context", unit_scale=True, desc="certify", disable=None) as bar:
        try:
            for tally in visits:
                done, now = certification.asked(tally), time.monotonic()
                bar.update(done - bar.n)
                bar.set_postfix(certification.summary(tally), refresh=False)
                first = first or (done, now)  # the time before went into compiling
                left = (now - first[1]) / max(1, done - first[0]) * (total - done)
                if now - first[1] > 10 and left > patience:
                    much = f"{total:,} contexts, about {left / 60:,.0f} minutes here"
                    remedy = f"run `apformer certify {path} --yes`, which can be stopped and goes on where it was"
                    raise UserError(f"to certify {path} is to ask {much}: {remedy}", USAGE)
                if now - saved > 30:
                    saved = now
                    keep()
        finally:
            seconds = keep()
    return tally, seconds


def _kept(file, identity):
    """What a stopped enumeration of the very same has kept; nothing if the file is missing, damaged or of another."""
    try:
        kept = json.loads(file.read_bytes())
        if kept["identity"] == identity and certification.asked(kept["tally"]) >= 0 and kept["seconds"] >= 0:
            return kept
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return {"tally": certification.start(), "seconds": 0.0}


def digest(params):
    """What tells these parameters from any others."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(params)):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _surroundings(params):
    """What floating-point results depend on."""
    device = jax.devices()[0]
    return {
        "dtype": ", ".join(sorted({str(leaf.dtype) for leaf in jax.tree.leaves(params)})),
        "matmul_precision": "highest",
        "backend": device.platform,
        "device": device.device_kind,
        "versions": directory.versions(),
    }
