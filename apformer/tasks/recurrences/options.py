"""Which rows a training step sees, and how many an evaluation has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Which rows a training step sees, and how many an evaluation has."""

    crop_terms: int = 5
    """Terms of a training row, at most."""
    hard_fraction: float = 0.5
    """Fraction of the batch that is mined: rows whose worst character costs most."""
    mined_per_hard: int = 8
    """Candidates drawn for each mined row. The hardest of all candidates are kept."""
    test_sequences: int = 2000
    """Held-out rows of the evaluation."""
