"""A run on disk: its directory, settings, metrics and checkpoints."""

from apformer.runs.language_model import load as load_language_model
from apformer.runs.metrics import read_metrics
from apformer.runs.restore import load

__all__ = ["load", "load_language_model", "read_metrics"]
