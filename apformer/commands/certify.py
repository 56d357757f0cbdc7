"""The command `apformer certify`: enumerate every context there is."""

import json
import sys
import time
from dataclasses import asdict, dataclass

import jax
import numpy as np
from tyro.conf import Positional

from apformer import files
from apformer.decoding.bind import bound
from apformer.errors import NOT_CERTIFIED, USAGE, UserError
from apformer.report import progress
from apformer.runs import directory, recipes
from apformer.runs.provenance import _surroundings, digest
from apformer.runs.restore import load_params, load_settings
from apformer.tasks import choose
from apformer.tasks.digits import certificate, examine, generator
from apformer.tasks.progressions import certificate as certification

PATIENCE = 1800  # seconds that an enumeration may take unasked
PARTIAL = "certificate.partial.json"
BATCH_TOKENS = {"cpu": 4096}  # what its caches hold; an accelerator wants more


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


def certify(args):
    """Enumerate every context of a run's best checkpoint; print the certificate, or JSON.

    Raises UserError (exit NOT_CERTIFIED), once it is printed, if the model is not certified.
    """
    path = directory.find(args.run)
    result = certify_run(path, load_settings(path), args.member, np.inf if args.yes else PATIENCE, args.step)
    print(json.dumps(result) if args.json else certificate_table(result))
    if not result["certified"]:
        remedy = "train it longer, or with another --seed"
        raise UserError(f"{path} is not certified ({result['claim']}): {remedy}", NOT_CERTIFIED)


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
        files.write_json(path / "certificate.json", result)
        return result
    params, step, member = load_params(path, settings, member, step)
    functions, tokens = bound(params, settings.model), recipes.module(settings.model).reach(settings.model)
    groups = certification.plan(settings.data, tokens)
    if not groups:
        raise UserError(f"no progression of {path} has a third term: there is nothing to certify", USAGE)
    if tokens is None:
        extent = f"up to {certification.most_terms(settings.data, None)} terms"
        print(f"{path} looks at all that it has read: what can be claimed ends with rows of {extent}", file=sys.stderr)
    files.preflight(path, 0)  # lest the disk refuse what took an hour
    identity = {"step": step, "member": member, "parameters_sha256": digest(params)} | _surroundings(params)
    identity |= {"model": asdict(settings.model), "data": asdict(settings.data), "rows": [len(g) for g in groups]}
    tally, seconds = _enumerate(path, settings.data, tokens, groups, functions["apply"], identity, patience)
    result = certification.conclude(settings.data, tokens, tally, groups, **functions)
    result = result | {"seconds": round(seconds, 1)} | identity
    files.write_json(path / "certificate.json", result)
    (path / PARTIAL).unlink(missing_ok=True)
    return result


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
        files.write_json(path / PARTIAL, {"identity": identity, "tally": tally, "seconds": seconds})
        return seconds

    batch_tokens = BATCH_TOKENS.get(jax.default_backend(), 2**20)
    visits = certification.enumerate_contexts(groups, apply, tally, batch_tokens)
    with progress.bar(total=total, initial=before, unit="context", unit_scale=True, desc="certify") as bar:
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
