"""Which rows a training step sees, and how many an evaluation has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Which rows a training step sees, and how many an evaluation has."""

    crop_terms: int = 4
    """Number of terms of a training row; of a file, the most that a row may have."""
    hard_fraction: float = 0.4
    """Fraction of the batch that is mined: rows with a run of zeros or nines whose worst character costs most."""
    mined_per_hard: int = 4
    """Candidates drawn for each mined row. The hardest of all candidates are kept."""
    dataset: str | None = None
    """Text file to train on, one progression a line, each of a width of its own. Without it, each step draws rows."""
    test_sequences: int = 500
    """Number of held-out rows in the evaluation, for each width and kind."""
