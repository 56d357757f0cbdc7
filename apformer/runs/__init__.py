"""A run on disk: its directory, settings, metrics and checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apformer.runs.language_model import LanguageModel
    from apformer.runs.restore import Run


def load(run: str | Path | None = None, member: int | None = None, step: int | None = None) -> "Run":
    """Load the run in a directory: `runs.load("runs/latest").model.apply(tokens_BT)`. See `runs.restore.load`."""
    from apformer.runs import restore  # so that `apformer --help` does not wait for JAX

    return restore.load(run, member, step)


def load_language_model(
    folder: str | None = None, member: int | None = None, adapter: str | None = None
) -> "LanguageModel":
    """Load the language model of a run of a text, or of a GPT-2 folder. See `runs.language_model.load`."""
    from apformer.runs import language_model

    return language_model.load(folder, member, adapter)


def read_metrics(path: str | Path) -> list[dict]:
    """Return the lines of a run's metrics.jsonl, which `pandas.DataFrame` takes. See `runs.metrics.read_metrics`."""
    from apformer.runs import metrics

    return metrics.read_metrics(path)
