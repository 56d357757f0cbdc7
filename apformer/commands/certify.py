"""Prove that a model is right in every context, in exact arithmetic and for any float32 rounding."""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apformer import files, tasks
from apformer.analysis import certificate
from apformer.commands import Run
from apformer.decoding.bind import Model
from apformer.errors import NOT_CERTIFIED, UserError, tell, typed
from apformer.machine import process
from apformer.proof import check
from apformer.report import progress, tables
from apformer.runs import directory
from apformer.runs.provenance import digest, surroundings
from apformer.runs.restore import bind_run, load_params, load_settings
from apformer.settings import Settings

PATIENCE = 1800  # seconds that an enumeration may take without --yes
PARTIAL = "certificate.{}.partial.json"  # {}: the judge, which is jax, numpy or theorem
KEEP_EVERY = 30  # seconds
FASTEST = 5_000_000  # contexts in a second: more than any machine computes


@dataclass(frozen=True)
class Certify:
    """Prove that a run is right in every context, and write certificate.json.

    Attributes:
        run: Run directory. The default is the latest run.
        member: Number of a member of a population. The default is the best on validation rows.
        step: Saved step to certify. The default is the best; of a population, the best on the mean.
        screen: Let JAX compute every context in float32 instead: faster, but no proof.
        theorem: Prove exact arithmetic alone, without the bounds of float32 rounding: faster.
        compare: Compare every logit of the proof with what JAX computes here.
        yes: Certify even if it takes longer than 30 minutes. After a stop, give the same command to continue.
        json: Print one JSON object instead of a table.
    """

    run: Run = None
    member: int | None = None
    step: int | None = None
    screen: bool = False
    theorem: bool = False
    compare: bool = False
    yes: bool = False
    json: bool = False


def certify(args: Certify) -> None:
    """Certify a run's best checkpoint, and print the certificate, or JSON.

    Raises:
        UserError: Exit code NOT_CERTIFIED, once it is printed, if the model is not proven, or with errors if it is
            screened.
    """
    path = directory.find(args.run)
    patience = np.inf if args.yes else PATIENCE
    settings = load_settings(path)
    if args.screen and args.theorem:
        raise UserError("--screen proves nothing: leave out --theorem")
    result = certify_run(
        path, settings, args.member, args.step, patience, args.screen, args.theorem, compare=args.compare
    )
    with suppress(BrokenPipeError):  # the exit code has the answer, too
        print(json.dumps(files.plain(result)) if args.json else tables.certificate(result))
    if not (result["screened"] if args.screen else result["certified"]):
        remedy = "numpy cannot compute the model" if result["screened"] else "train it longer, or with another --seed"
        raise UserError(f"{path} is not certified ({result['claim']}): {remedy}", NOT_CERTIFIED)


def certify_run(
    path: Path,
    settings: Settings,
    member: int | None = None,
    step: int | None = None,
    patience: float = PATIENCE,
    screen: bool = False,
    theorem: bool = False,
    compare: bool = False,
    hasty: bool = False,
) -> dict:
    """Return the certificate of a run's best checkpoint, or of a saved step, and write certificate.json.

    A stop keeps the tally so far in a file beside it, one for each judge, and the next call continues from it. A
    certificate that proves more is kept: of the same parameters if less was to be proven and nothing speaks against
    it, and of others if a step or a member is named.

    Args:
        path: Run directory.
        settings: Its settings.
        member: Member of a population; None for the best.
        step: Saved step; None for the best.
        patience: Seconds that it may take.
        screen: Let JAX compute the model alone, without a proof, as for models that numpy does not compute.
        theorem: Leave out the bounds of rounding.
        compare: Compare the logits of JAX with those of numpy after every string.
        hasty: End at the WORST-th error, or at the first margin below its bound. If the proof fails, no file is
            written, and the result is {"certified": False, "missed": the contexts with the smallest margins}.

    Raises:
        UserError: Exit code USAGE, if it would take more than `patience`, if the task has no contexts, or with
            `compare` if numpy does not compute the model; NOT_CERTIFIED, once the certificate is written, if logits
            differ by more than rounding.
    """
    named = step is not None or member is not None
    params, step, member = load_params(path, settings, member, step)
    case = certificate.case(settings, tasks.ability(settings, "contexts", path, "certify"), params)
    case = case._replace(exact=theorem)
    if compare and case.fault:
        raise UserError(f"--compare needs numpy, which does not compute this model: {case.fault}")
    file, header = path / "certificate.json", certificate.header(settings)
    older = {}
    with suppress(UserError):
        older = files.read_json(file)
        if not files.has(older, {}) or older | header != older:
            tell(f"{file} is of another version or config.json: all contexts are computed again")
            older = {}
    files.preflight(path, 0)  # before the work, which may take an hour
    identity = {"step": step, "member": member, "parameters_sha256": digest(params)} | surroundings(params) | header
    if case.fault and not screen:
        tell(f"{path} is screened by JAX, since numpy does not compute such a model: {case.fault}")
    model, prove = bind_run(settings, params), not screen and case.fault is None
    tally, seconds = _enumerate(path, case, identity, patience, None if prove else model, hasty)
    result = certificate.conclude(case, tally, prove) | {"seconds": round(seconds, 1)} | identity
    if hasty and not (result["certified"] or result["screened"]):
        name = getattr(case.contexts, "named", lambda context, data: {"margin": context["margin"]})
        return {"certified": False, "missed": [name(context, case.data) for context in tally["worst"]]}
    strings, gap = 0, 0.0
    if compare:
        with progress.bar(unit="string", unit_scale=True, desc="compare") as bar:
            for count, apart in certificate.compare(case, model):
                strings, gap = strings + count, max(gap, apart)
                bar.update(count)
        result["witnesses"].append({"witness": certificate.XLA, "strings": strings, "largest_gap": gap})
    same = older.get("parameters_sha256") == identity["parameters_sha256"]
    # What asked for less, and found nothing wrong, does not replace a proof of the same parameters.
    agrees = not result["errors"] and (result["theorem"] if theorem else not prove)
    if _strength(older) > _strength(result) and (agrees if same else named):
        tell(f"{file} proves more, of step {older.get('step')}, and is kept")
    else:
        files.write_json(file, result)
    if not gap <= max(certificate.LARGEST_GAP, 1e-5 * result["largest"]):
        raise UserError(
            f"logits of JAX differ by {gap:.3g} from those of the proof, which is more than rounding"
            ": `apformer doctor` tests this jaxlib",
            NOT_CERTIFIED,
        )
    return result


def _strength(result: dict) -> tuple[bool, bool]:
    """Return whether a certificate proves exact arithmetic, and any float32 rounding."""
    return result.get("theorem") is True, result.get("rounding") is True


def _enumerate(
    path: Path,
    case: check.Case,
    identity: dict,
    patience: float,
    model: Model | None,
    hasty: bool,
) -> tuple[dict, float]:
    """Return the tally of all contexts, and the seconds it took. It is saved every half minute, and at a stop.

    Args:
        path: Run directory.
        case: The model and its contexts.
        identity: Facts that the tally depends on.
        patience: Seconds that the rest may take.
        model: Model for JAX to screen; with None, numpy proves.
        hasty: Whether to end at the WORST-th error, or at the first margin of a proof that is below its bound.

    Raises:
        UserError: Exit code USAGE, if the rest takes longer.
    """
    judge = "jax" if model else "theorem" if case.exact else "numpy"
    record, partial = {"identity": identity, "tally": check.TALLY, "seconds": 0.0}, path / PARTIAL.format(judge)
    record |= check.load_partial(partial, identity)
    tally = record["tally"]
    total = case.total
    first = None
    begun = saved = time.monotonic()

    def seconds() -> float:
        return record["seconds"] + time.monotonic() - begun

    def refuse(seconds: float) -> None:
        if seconds > patience:
            amount = f"about {seconds / 60:,.0f} minutes here, for {total:,} contexts"
            sooner = " (it is faster with --theorem)" * (model is None)
            raise UserError(
                f"to certify {path} takes {amount}: run {typed('certify', path, '--yes')}; after a stop, the same "
                f"command continues{sooner}"
            )

    def save() -> None:
        files.write_json(partial, check.with_digest(record | {"tally": tally, "seconds": seconds()}))

    refuse((total or 0) / FASTEST)  # before the first slice, which may need more memory than there is
    tallies = certificate.prove(case, tally) if model is None else certificate.screen(case, model, tally)
    bar = progress.bar(unit="context", unit_scale=True, desc=judge, total=total)
    with process.deferred() as received, bar:
        try:
            for tally in tallies:
                now, done = time.monotonic(), tally["contexts"]
                bar.update(done - bar.n)
                least = {"errors": tally["errors"], "smallest margin": tally["smallest_margin"]}
                bar.set_postfix(least, refresh=False)
                start, since = first = first or (done, now)  # the time before went into compiling
                remaining = (now - since) / max(1, done - start) * ((total or done) - done)
                if now - since > 10:
                    refuse(remaining)
                if received:
                    amount = f"{done:,} of {total:,} contexts" if total else f"{done:,} contexts"
                    tell(f"{path}: {amount} are done; the same command continues")
                    sys.exit(128 + max(received))
                unbounded = model is None and case.bounded and tally["covered"] < tally["strings"]
                if hasty and (unbounded or tally["errors"] >= check.WORST):
                    break
                if now - saved > KEEP_EVERY:
                    saved = now
                    save()
        except BaseException:
            if tally["slices"]:
                save()
            raise
    partial.unlink(missing_ok=True)
    return tally, seconds()
