"""Which rows a training step sees, and how many an evaluation has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Which rows a training step sees, and how many an evaluation has."""

    hard_fraction: float = 0.25
    """Fraction of the batch that is mined: rows whose worst digit costs most."""
    mined_per_hard: int = 4
    """Candidates drawn for each mined row. The hardest of all candidates are kept."""
    test_sequences: int = 2000
    """Held-out rows of each kind in the evaluation."""
