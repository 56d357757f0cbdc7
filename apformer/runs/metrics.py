"""What a run says while it trains: metrics.jsonl, a progress bar, and a line at each checkpoint."""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from apformer import files, optimizer
from apformer.errors import CHECKPOINT, NON_FINITE, UserError


class Log:
    """Lines of metrics.jsonl and the progress bar, one chunk of steps behind the device."""

    def __init__(self, path, settings, step):
        self.path, self.settings, self.held, self.start = path, settings, None, time.perf_counter()
        self.bar = tqdm(total=settings.training.steps, initial=step, unit="step", disable=None, dynamic_ncols=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bar.close()

    def hold(self, step, metrics, validation=None):
        """Keep the metrics (device arrays) of the chunk that ends at a step."""
        self.held = (step, metrics, validation)

    def flush(self):
        """Write the line held. Raises UserError (exit NON_FINITE) if its loss is not finite."""
        if self.held is None:
            return
        (step, metrics, validation), self.held = self.held, None
        # Means over the steps of the chunk; a population keeps its axis of members.
        means = {name: np.mean(values, axis=-1, dtype=np.float64) for name, values in jax.device_get(metrics).items()}
        self._require_finite(step, means["loss"])
        cfg = self.settings.optimizer
        rate = cfg.learning_rate * optimizer.share_of_peak(step - 1, cfg, self.settings.training.steps)
        record = {"step": step} | means | {"learning_rate": rate}
        if validation is not None:
            record |= {f"validation_{name}": values for name, values in validation.items()}
        files.append_record(self.path, record | {"seconds": round(time.perf_counter() - self.start, 3)})
        self.bar.update(step - self.bar.n)
        self.bar.set_postfix_str(_in_words(means))
        if validation is not None:
            words = f"{_in_words(means | {'exact': None})}, validation {_in_words(validation)}"
            tqdm.write(f"step {step:,}: {words}; saved", file=sys.stderr)

    def _require_finite(self, step, losses):
        failed = np.flatnonzero(~np.isfinite(losses))
        if len(failed):
            seed = self.settings.training.seed + int(failed[0])
            remedy = "lower --learning_rate; the checkpoints before it are intact"
            raise UserError(f"the loss of seed {seed} is not finite at step {step}: {remedy}", NON_FINITE)


def _in_words(metrics):
    """The loss, and the share of exact terms where there are any, as means over members."""
    words = [f"loss {np.mean(metrics['loss']):.4f}"]
    if metrics.get("exact") is not None:
        words.append(f"exact {np.mean(metrics['exact']):.2%}")
    return ", ".join(words)


def read_metrics(path):
    """The records of a run's metrics.jsonl. Raises UserError (exit CHECKPOINT) if it is missing or damaged."""
    path = Path(path) / "metrics.jsonl"
    try:
        records = [json.loads(line) for line in files.read_text(path).splitlines()]
        if all(isinstance(record, dict) and isinstance(record.get("step"), int) for record in records):
            return records
        raise ValueError("a line is no record of a step")
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): `apformer resume {path.parent}` mends it", CHECKPOINT) from None
