"""Prove a run on every context there is: the count, the errors, the smallest margin, and two lines."""

import hashlib
import json
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import jaxlib
import numpy as np
from tyro.conf import Positional

from apformer import files, tasks
from apformer.analysis import certificate
from apformer.decoding.bind import Model, bind_run
from apformer.errors import CHECKPOINT, NOT_CERTIFIED, USAGE, UserError, typed
from apformer.flags import parse
from apformer.machine import process
from apformer.proof import check
from apformer.report import progress, tables
from apformer.runs import directory
from apformer.runs.metrics import diverged, read_metrics
from apformer.runs.provenance import digest, surroundings
from apformer.runs.restore import load_described, load_params, load_settings
from apformer.settings import Settings

PATIENCE = 1800  # seconds that an enumeration may take unasked
PARTIAL = "certificate.partial.json"
KEEP_EVERY = 30  # seconds
MOST = 1e9  # seconds that an enumeration before a stop can have taken


@dataclass(frozen=True)
class Certify:
    """Prove a run on every context that exists: writes certificate.json."""

    run: Positional[str | None] = None
    """Run directory. The default is the latest run."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    step: int | None = None
    """Saved step to certify. The default is the best; of a population, the best on the mean."""
    screen: bool = False
    """Let JAX ask every context in float32 instead: sooner, and no proof."""
    compare: bool = False
    """Compare every logit of the proof with what JAX computes here."""
    yes: bool = False
    """Continue even if it takes longer than 30 minutes. After a stop, the same command continues it."""
    json: bool = False
    """Print one JSON object instead of a table."""


def main(args: list[str]) -> None:
    """Run the command with its arguments."""
    certify(parse(Certify, args, "apformer certify"))


def certify(args: Certify) -> None:
    """Ask every context of a run's best checkpoint; print the certificate, or JSON.

    Raises:
        UserError: Exit code NOT_CERTIFIED, once it is printed, if the model is not proven, or with errors if it is
            screened.
    """
    path = directory.find(args.run)
    settings = load_settings(path)
    patience = np.inf if args.yes else PATIENCE
    result = certify_run(path, settings, args.member, patience, args.step, screen=args.screen)
    if args.compare:
        result = compare_run(path, settings, result)
    with suppress(BrokenPipeError):  # the exit code tells it, too
        print(json.dumps(files.plain(result)) if args.json else tables.certificate(result))
    if not (result["screened"] if args.screen else result["certified"]):
        remedy = "train it longer, or with another --seed"
        raise UserError(f"{path} is not certified ({result['claim']}): {remedy}", NOT_CERTIFIED)


def case_of(path: Path, settings: Settings, params: dict) -> certificate.Case:
    """Return the Case of a run. Raises UserError (exit USAGE) if its task lists no contexts."""
    return certificate.case(settings, tasks.ability(settings, "contexts", path, "certify"), params)


def certify_run(
    path: Path,
    settings: Settings,
    member: int | None = None,
    patience: float = PATIENCE,
    step: int | None = None,
    screen: bool = False,
    hasty: bool = False,
) -> dict:
    """Return the certificate of a run's best checkpoint, or of a saved step, and write certificate.json.

    certificate.partial.json keeps what was asked before a stop, and the next call goes on from it.

    Args:
        path: Run directory.
        settings: Its settings.
        member: Member of a population; None for the best.
        patience: Seconds that it may take.
        step: Saved step; None for the best.
        screen: Let JAX ask alone. So it does where numpy does not compute such a model.
        hasty: Let JAX ask first, and numpy prove what that finds without an error. Without a proof no file is written,
            and what is returned is {"certified": False, "missed": the contexts with the smallest margins}.

    Raises:
        UserError: Exit code USAGE, if it would take more than `patience`, or if there is nothing to ask.
    """
    params, step, member = load_params(path, settings, member, step)
    case = case_of(path, settings, params)
    _name_older(path / "certificate.json")
    files.preflight(path, 0)  # so that the disk does not refuse what took an hour
    identity = {"step": step, "member": member, "parameters_sha256": digest(params)} | surroundings(params)
    identity |= {"model": asdict(settings.model), "data": asdict(settings.data)}
    identity = json.loads(json.dumps(identity))  # as it is kept: JSON has no tuples
    prove, seconds = not screen and case.why is None, 0.0
    if not screen and case.why:
        print(f"{path} is screened by JAX, since numpy does not compute such a model: {case.why}", file=sys.stderr)
    if hasty or not prove:
        tally, seconds = _asked(path, case, identity, patience, bind_run(settings, params), hasty)
        if hasty and (tally["errors"] or (prove and _unproven(case, tally))):
            return {"certified": False, "missed": _missed(case, tally)}
    if prove:
        tally, more = _asked(path, case, identity, patience)
        seconds += more
    result = certificate.conclude(case, tally, prove) | {"seconds": round(seconds, 1)} | identity
    if hasty and prove and not result["certified"]:
        return {"certified": False, "missed": _missed(case, tally)}
    if settings.training.members > 1 and (lost := diverged(read_metrics(path))):
        result["diverged"] = lost
    files.write_json(path / "certificate.json", result)
    return result


def _name_older(certificate_file: Path) -> None:
    """Say on standard error that there is a certificate of an older version, which is made anew."""
    with suppress(UserError):
        if certificate_file.exists() and not files.has(files.read_json(certificate_file), {"format": int}):
            print(f"{certificate_file} is of an older version, and no proof: all is asked again", file=sys.stderr)


def _asked(
    path: Path, case: certificate.Case, identity: dict, patience: float, model: Model | None = None, hasty: bool = False
) -> tuple[dict, float]:
    """Return the tally of all contexts, and the seconds it took. model: for JAX to screen; without it, numpy proves."""
    work = Work(path, identity | {"judge": "numpy" if model is None else "jax"}, patience)
    with work:
        ask = certificate.prove(case, work.tally) if model is None else certificate.screen(case, model, work.tally)
        for tally in ask:
            work.tell(tally, case.total)
            if hasty and tally["errors"] >= check.WORST:
                break
    (path / PARTIAL).unlink(missing_ok=True)
    return work.tally, work.seconds()


def _missed(case: certificate.Case, tally: dict) -> list[dict]:
    """Return the contexts with the smallest margins, as missed.jsonl keeps them."""
    named = getattr(case.contexts, "named", lambda context, data: {"margin": context["margin"]})
    return [named(context, case.data) for context in tally["worst"]]


def _unproven(case: certificate.Case, tally: dict) -> bool:
    """Return whether numpy does not prove the contexts that JAX found the smallest margins of."""
    some = certificate.provable(case, tally)
    return bool(check.verdict(some, None)[2])


def compare_run(path: Path, settings: Settings, result: dict) -> dict:
    """Return the certificate with the largest difference between logits of JAX and of numpy, and write it.

    Raises:
        UserError: Exit code CHECKPOINT, if the parameters that the certificate is of are gone, as the run was trained
            further; USAGE, if numpy does not compute such a model.
    """
    params = load_described(path, settings, result)
    if params is None:
        raise UserError(f"{path} was trained further while it was certified: certify it again", CHECKPOINT)
    case, strings, gap = case_of(path, settings, params), 0, 0.0
    if case.why:
        raise UserError(f"--compare computes another model than this one: {case.why}", USAGE)
    with progress.bar(unit="string", unit_scale=True, desc="compare") as bar:
        for asked, apart in certificate.compare(case, bind_run(settings, params)):
            strings, gap = strings + asked, max(gap, apart)
            bar.update(asked)
    witness = {"witness": f"XLA, jaxlib {jaxlib.__version__}, float32", "strings": strings, "largest_gap": gap}
    result = result | {"witnesses": [*result["witnesses"], witness]}
    files.write_json(path / "certificate.json", result)
    if not gap <= max(certificate.LARGEST_GAP, 1e-5 * result["largest"]):
        fault = f"logits of JAX differ by {gap:.3g} from those of the proof, which is more than rounding"
        raise UserError(f"{fault}: `apformer doctor` tests this jaxlib", NOT_CERTIFIED)
    return result


class Work:
    """An enumeration as it goes on: it is shown, kept every half minute in the run directory, and not too long.

    tally: of the very same enumeration before a stop; an empty one at the beginning.
    """

    def __init__(self, path: Path, identity: dict, patience: float) -> None:
        self.path, self.identity, self.patience = path, identity, patience
        self.tally, self.before = self._kept()
        self.begun = self.saved = time.monotonic()
        self.first, self.received, self.stops = None, (), ExitStack()

    def __enter__(self) -> "Work":
        self.received = self.stops.enter_context(process.deferred())
        self.bar = progress.bar(unit="context", unit_scale=True, desc=self.identity["judge"])
        return self

    def __exit__(self, *raised: object) -> bool | None:
        self.bar.close()
        if raised[0] is not None and self.tally["slices"]:
            self._keep()
        return self.stops.__exit__(*raised)

    def seconds(self) -> float:
        """Return the seconds of work, those before a stop included."""
        return self.before + time.monotonic() - self.begun

    def tell(self, tally: dict, total: int | None) -> None:
        """Take note of a tally. Raises UserError (exit USAGE) if the rest of `total` contexts takes too long."""
        self.tally, now, done = tally, time.monotonic(), tally["contexts"]
        self.bar.total = total
        self.bar.update(done - self.bar.n)
        self.bar.set_postfix({"errors": tally["errors"], "smallest margin": tally["smallest_margin"]}, refresh=False)
        self.first = self.first or (done, now)  # the time before went into compiling
        left = (now - self.first[1]) / max(1, done - self.first[0]) * ((total or done) - done)
        if now - self.first[1] > 10 and left > self.patience:
            much = f"{total:,} contexts, about {left / 60:,.0f} minutes here"
            remedy = f"run {typed('certify', self.path, '--yes')}, which can be stopped and goes on where it was"
            raise UserError(f"to certify {self.path} is to ask {much}: {remedy}", USAGE)
        if self.received:
            much = f"{done:,} of {total:,} contexts" if total else f"{done:,} contexts"
            print(f"{self.path} is asked up to {much}: the same command goes on", file=sys.stderr)
            sys.exit(128 + max(self.received))
        if now - self.saved > KEEP_EVERY:
            self._keep()

    def _keep(self) -> None:
        self.saved = time.monotonic()
        kept = {"identity": self.identity, "state": self.tally, "seconds": self.seconds()}
        files.write_json(self.path / PARTIAL, kept | {"sha256": _sha256(self.tally)})

    def _kept(self) -> tuple[dict, float]:
        """Return (tally, seconds) of a stopped enumeration of the very same; none if the file is missing or damaged."""
        try:
            kept = json.loads((self.path / PARTIAL).read_bytes())
            if kept["identity"] == self.identity and kept["sha256"] == _sha256(kept["state"]):
                if kept["state"].keys() == check.TALLY.keys():
                    return kept["state"], min(max(0.0, float(kept["seconds"])), MOST)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            pass
        return check.TALLY, 0.0


def _sha256(state: object) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
