"""Test a run on every context: the count, the errors, the smallest margin."""

import hashlib
import json
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass

import jaxlib
import numpy as np
from tyro.conf import Positional

from apformer import files, tasks
from apformer.analysis.certificate import WORST
from apformer.decoding.bind import bind_run
from apformer.errors import CHECKPOINT, NOT_CERTIFIED, USAGE, UserError, typed
from apformer.flags import parse
from apformer.machine import compiler, process
from apformer.proof import witness
from apformer.report import progress, tables
from apformer.runs import directory
from apformer.runs.metrics import diverged, read_metrics
from apformer.runs.provenance import digest, surroundings
from apformer.runs.restore import load_described, load_params, load_settings

PATIENCE = 1800  # seconds that an enumeration may take unasked
PARTIAL = "certificate.partial.json"
KEEP_EVERY = 30  # seconds
MOST = 1e9  # seconds that an enumeration before a stop can have taken


@dataclass(frozen=True)
class Certify:
    """Test a run on every context that exists: writes certificate.json."""

    run: Positional[str | None] = None
    """Run directory. The default is the latest run."""
    member: int | None = None
    """Number of a member of a population. The default is the best on validation rows."""
    step: int | None = None
    """Saved step to certify. The default is the best; of a population, the best on the mean."""
    check: bool = False
    """Let numpy compute every logit again, in float64, and compare. certificate.json tells who agreed."""
    yes: bool = False
    """Continue even if the enumeration takes longer than 30 minutes. After a stop, the same command continues it."""
    json: bool = False
    """Print one JSON object instead of a table."""


def main(args):
    """Run the command with its arguments."""
    certify(parse(Certify, args, "apformer certify"))


def certify(args):
    """Enumerate every context of a run's best checkpoint; print the certificate, or JSON.

    Raises UserError (exit NOT_CERTIFIED), once it is printed, if the model is not certified.
    """
    path = directory.find(args.run)
    settings = load_settings(path)
    contexts = tasks.ability(settings, "contexts", path, "certify --check") if args.check else None
    contexts = contexts(settings) if callable(contexts) else contexts
    result = certify_run(path, settings, args.member, np.inf if args.yes else PATIENCE, args.step)
    if contexts is not None:
        result = check_run(path, settings, result, contexts)
    else:
        warn()
    with suppress(BrokenPipeError):  # the exit code tells it, too
        print(json.dumps(result) if args.json else tables.certificate(result))
    if not result["certified"]:
        remedy = "train it longer, or with another --seed"
        raise UserError(f"{path} is not certified ({result['claim']}): {remedy}", NOT_CERTIFIED)


def warn():
    """Say on standard error that a certificate rests on a compiler, where XLA is known to compute wrongly."""
    if names := compiler.wrong():
        again = "`apformer certify --check` has numpy compute every logit again"
        print(f"{compiler.sentence(names)}; {again}", file=sys.stderr)


def certify_run(path, settings, member=None, patience=PATIENCE, step=None, hasty=False):
    """certificate.json of a run's best checkpoint, or of a saved step.

    certificate.partial.json keeps what was enumerated before a stop, and the next call goes on from it. hasty: end once
    as many contexts are wrong as a certificate names. A hasty call that does not certify the model writes no file and
    returns {"certified": False, "missed": the worst contexts in the tally of the task}. Raises UserError (exit USAGE)
    if it would take more than `patience` seconds, or if there is nothing that could be certified.
    """
    enumerate_all = tasks.ability(settings, "certify", path)
    params, step, member = load_params(path, settings, member, step)
    files.preflight(path, 0)  # so that the disk does not refuse what took an hour
    identity = {"step": step, "member": member, "parameters_sha256": digest(params)} | surroundings(params)
    identity |= {"model": asdict(settings.model), "data": asdict(settings.data)}
    identity = json.loads(json.dumps(identity))  # as it is kept: JSON has no tuples
    work = Work(path, identity, patience, hasty)
    model = bind_run(settings, params)
    try:
        with work:
            result = enumerate_all(model, settings, work)
    except Wrong:
        result = {"certified": False}
    if hasty and not result["certified"]:
        (path / PARTIAL).unlink(missing_ok=True)
        return {"certified": False, "missed": (work.state or {}).get("worst", [])}
    witnesses = [{"witness": f"XLA, jaxlib {jaxlib.__version__}"}]
    result = result | {"seconds": round(work.seconds(), 1), "witnesses": witnesses} | identity
    if settings.training.members > 1 and (lost := diverged(read_metrics(path))):
        result["diverged"] = lost
    files.write_json(path / "certificate.json", result)
    (path / PARTIAL).unlink(missing_ok=True)
    return result


def check_run(path, settings, result, contexts):
    """certificate.json with what its other witnesses say: numpy, of every logit, in float64, and the page, of some.

    Raises UserError (exit CHECKPOINT) if the parameters that `result` is of are gone, as the run was trained further.
    """
    params = load_described(path, settings, result)
    if params is None:
        raise UserError(f"{path} was trained further while it was certified: certify it again", CHECKPOINT)
    model = bind_run(settings, params)
    found = witness.compare(model, settings, contexts)
    result = result | {"witnesses": [*result["witnesses"], *found]}
    # XLA's own ways were compared after some strings alone; the smallest margin is 100 times their difference at least.
    rounding = max(witness.FAULT, 2 * result["largest_difference"])
    for each in found:
        if each.get("errors") or each["largest_gap"] > rounding:
            wrong = (
                f"finds {each.get('errors', 0):,} wrong characters, and logits that differ by {each['largest_gap']:.3g}"
            )
            result |= {"certified": False, "claim": f"the witnesses do not agree: {each['witness']} {wrong}"}
    files.write_json(path / "certificate.json", result)
    return result


class Wrong(Exception):
    """Many contexts are continued wrongly, and no more is asked."""


class Work:
    """An enumeration as it goes on: it is shown, kept every half minute in the run directory, and not too long.

    state: what was kept of the very same enumeration before a stop, JSON; None at the beginning.
    """

    def __init__(self, path, identity, patience, hasty=False):
        self.path, self.identity, self.patience, self.hasty = path, identity, patience, hasty
        self.state, self.before = self._kept()
        self.begun = self.saved = time.monotonic()
        self.first, self.bar, self.received, self.stops = None, None, (), ExitStack()

    def __enter__(self):
        self.received = self.stops.enter_context(process.deferred())
        self.bar = progress.bar(unit="context", unit_scale=True, desc="certify")
        return self

    def __exit__(self, *raised):
        self.bar.close()
        if self.state is not None:
            self._keep()
        return self.stops.__exit__(*raised)

    def seconds(self):
        """Seconds of work, those before a stop included."""
        return self.before + time.monotonic() - self.begun

    def tell(self, done, total, state=None, note=None):
        """Take note of `done` contexts out of `total`. Raises UserError (exit USAGE) if the rest takes too long.

        state: all that is needed to go on from here, as JSON. note: {word: what the progress bar shows}, of which
        "errors" is the number of wrong contexts. Raises Wrong in haste if they are as many as a certificate names.
        """
        self.state, now = state, time.monotonic()
        if self.hasty and note and note["errors"] >= WORST:
            raise Wrong
        self.bar.total = total
        self.bar.update(done - self.bar.n)
        self.bar.set_postfix(note or {}, refresh=False)
        self.first = self.first or (done, now)  # the time before went into compiling
        left = (now - self.first[1]) / max(1, done - self.first[0]) * (total - done)
        if now - self.first[1] > 10 and left > self.patience:
            much = f"{total:,} contexts, about {left / 60:,.0f} minutes here"
            remedy = f"run {typed('certify', self.path, '--yes')}, which can be stopped and goes on where it was"
            raise UserError(f"to certify {self.path} is to ask {much}: {remedy}", USAGE)
        if self.received:
            self.say(f"is asked up to {done:,} of {total:,} contexts: the same command goes on")
            sys.exit(128 + max(self.received))
        if state is not None and now - self.saved > KEEP_EVERY:
            self._keep()

    def say(self, sentence):
        """A line on standard error, about this run."""
        print(f"{self.path} {sentence}", file=sys.stderr)

    def _keep(self):
        self.saved = time.monotonic()
        kept = {"identity": self.identity, "state": self.state, "seconds": self.seconds()}
        files.write_json(self.path / PARTIAL, kept | {"sha256": _sha256(self.state)})

    def _kept(self):
        """(state, seconds) of a stopped enumeration of the very same; nothing if the file is missing or damaged."""
        try:
            kept = json.loads((self.path / PARTIAL).read_bytes())
            if kept["identity"] == self.identity and kept["sha256"] == _sha256(kept["state"]):
                return kept["state"], min(max(0.0, float(kept["seconds"])), MOST)
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
        return None, 0.0


def _sha256(state):
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
