"""Write metrics.jsonl and its tracker, a progress bar, and a line at each checkpoint, while a run trains.

missed.jsonl holds the contexts with the smallest margins, a line for each certificate that failed:

    {"step": 750, "first": [471, 103], "difference": [44, 248], "given": [3, 2], "margin": [-0.12, 0.16]}

The steps after step 750 train on them, if the task can. A resumed run reads them again, and so ends with the same bits
as one that was never stopped.
"""

import dataclasses
import time
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apformer import files, optimizer
from apformer.errors import CHECKPOINT, NON_FINITE, UserError, typed
from apformer.report import progress, trackers
from apformer.runs.selection import score
from apformer.settings import Settings

MISSED = "missed.jsonl"

_rate = jax.jit(optimizer.learning_rate, static_argnums=(2, 3))


class Log:
    """Write lines of metrics.jsonl and the progress bar, one chunk of steps behind the device."""

    def __init__(self, path: Path, settings: Settings, step: int, peak: Any) -> None:
        """Begin after a step. peak: the learning rate after warm-up, of each member if there are several."""
        self.path = path
        self.settings = settings
        self.peak = np.asarray(peak)
        self.failed = set()
        # (step, metrics as device arrays, validation) of the last chunk, for `flush`.
        self.pending: tuple[int, dict, dict | None] | None = None
        self.tracker = None
        self.start = time.perf_counter()
        with files.disk_errors(path):
            path.touch()
        self.bar = progress.bar(total=settings.training.steps, initial=step, unit="step")
        self.bar.set_postfix_str(progress.COMPILING)

    def __enter__(self) -> "Log":
        log_to, folder = self.settings.training.log_to, self.path.parent
        if log_to != "none" and jax.process_index() == 0:
            flags = dataclasses.asdict(self.settings)
            self.tracker = trackers.Tracker(log_to, folder, flags, lambda: read_metrics(folder))
        return self

    def __exit__(self, fault: type | None, *_: object) -> None:
        if self.tracker:
            self.tracker.close(fault is not None)
        self.bar.close()

    def flush(self) -> dict[str, Any]:
        """Write the pending line and return it; {} if there is none. A member whose loss is not finite has NaN.

        Raises UserError (exit NON_FINITE) if no member has a finite loss.
        """
        if self.pending is None:
            return {}
        step, metrics, validation = self.pending
        self.pending = None
        # Means over the steps of the chunk; a population keeps its axis of members.
        means = {name: np.mean(values, -1, np.float64) for name, values in jax.device_get(metrics).items()}
        record: dict[str, Any] = {"step": step} | _of_finite(means)
        rule = self.settings.optimizer
        if rule.rule in optimizer.RULES and "learning_rate" not in record:  # a task's own step may report it
            record["learning_rate"] = np.asarray(_rate(step - 1, self.peak, rule, self.settings.training.steps))
        if validation is not None:
            validation = _of_finite(validation)
            record |= {f"validation_{name}": values for name, values in validation.items()}
        self._report_failures(step, record["loss"])
        line = record | {"seconds": round(time.perf_counter() - self.start, 3)}
        files.append_record(self.path, line)
        if self.tracker:
            self.tracker.write(line)
        self.bar.update(step - self.bar.n)
        self.bar.set_postfix_str(_in_words(record))
        if validation is not None:
            words = f"{_in_words({'loss': record['loss']})}, validation {_in_words(validation)}"
            progress.write(f"step {step:,}: {words}; saving")
        return record

    def _report_failures(self, step: int, losses: np.ndarray) -> None:
        failed = {*np.flatnonzero(~np.isfinite(losses)).tolist()}
        if len(failed) == losses.size:
            subject = "the loss" if losses.size == 1 else "every member's loss"
            raise UserError(
                f"{subject} is not finite at step {step}: lower --learning_rate; the checkpoints before it are intact",
                NON_FINITE,
            )
        for member in sorted(failed - self.failed):
            words = f"step {step:,}: the loss of member {member} is not finite: it is left out, and the others continue"
            progress.write(words)
        self.failed |= failed


def _of_finite(metrics: dict) -> dict[str, np.ndarray]:
    """Return metrics with NaN in place of all numbers of a member whose loss is not finite."""
    finite = np.isfinite(metrics["loss"])
    return {name: np.where(finite, values, np.nan) for name, values in metrics.items()}


def _in_words(metrics: dict) -> str:
    """Return the loss, and the share of exact terms if there is one, as text: means over the finite members."""
    words = [f"loss {finite_mean(metrics['loss']):.4f}"]
    if metrics.get("exact") is not None:
        words.append(f"exact {finite_mean(metrics['exact']):.2%}")
    return ", ".join(words)


def finite_mean(values: Any) -> float:
    """Return the mean of the finite values; infinity if there are none."""
    values = np.asarray(values)
    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if finite.size else np.inf


def diverged(records: list[dict]) -> list[dict[str, int]]:
    """Return [{"member", "step"}] of the members whose loss is not finite at the end, with the first such step."""
    records = [record for record in records if "loss" in record]
    # The update after the last loss may have failed too.
    losses = [[record.get(name, record["loss"]) for record in records] for name in ("loss", "validation_loss")]
    finite_NM = np.all(np.isfinite(np.array(losses, np.float64)), 0)
    if finite_NM.ndim < 2:
        return []
    since = [max(np.flatnonzero(finite_N), default=-1) + 1 for finite_N in finite_NM.T]
    return [{"member": member, "step": records[n]["step"]} for member, n in enumerate(since) if n < len(records)]


def stale(path: Path) -> int:
    """Return the number of checkpoints since the best one, from metrics.jsonl."""
    scores = [finite_mean(score(record)) for record in read_metrics(path) if "validation_loss" in record]
    return len(scores) - 1 - int(np.argmin(scores)) if scores else 0


def first_lost(records: list[dict], log_every: int, step: int) -> int | None:
    """Return the first step up to `step` whose line of metrics.jsonl is missing or out of order, or None."""
    due = chain(range(log_every, step + 1, log_every), [step] * (step % log_every > 0))
    recorded = iter([record["step"] for record in records])  # `in` reads it up to the step: later ones must follow
    return next((each for each in due if each not in recorded), None)


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of a run's metrics.jsonl. Raises UserError (exit CHECKPOINT) if it is missing or damaged."""
    file = Path(path) / "metrics.jsonl"
    records = _records(file)
    names = ("loss", "validation_loss")
    if len({np.shape(record[name]) for record in records for name in names if name in record}) > 1:
        raise UserError(
            f"{file} is damaged (its lines have losses of different numbers of members"
            "): restore it from a copy, or train anew",
            CHECKPOINT,
        )
    return records


def note_missed(path: Path, step: int, contexts: list[dict]) -> None:
    """Append the contexts that the certificate of a step missed, the worst first; dicts with the same keys."""
    names = contexts[0] if contexts else ()
    record = {"step": step} | {name: [context[name] for context in contexts] for name in names}
    files.append_record(path / MISSED, record)


def read_missed(path: Path) -> list[dict]:
    """Return the records of a run's missed.jsonl; [] without it. Raises UserError (exit CHECKPOINT) if damaged."""
    return _records(path / MISSED) if (path / MISSED).exists() else []


def _records(file: Path) -> list[dict]:
    try:
        return [files.read_record(line) for line in files.read_bytes(file).splitlines()]
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): {typed('resume', file.parent)} repairs it", CHECKPOINT) from None
