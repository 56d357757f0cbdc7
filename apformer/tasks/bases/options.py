"""Which rows a training step sees, and how many an evaluation has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Which rows a training step sees, and how many an evaluation has."""

    crop_terms: int = 6
    """Number of terms of a training row."""
    hard_fraction: float = 0.4
    """Fraction of the batch that is mined: rows with carries that run far whose worst character costs most."""
    mined_per_hard: int = 4
    """Candidates drawn for each mined row. The hardest of all candidates are kept."""
    test_sequences: int = 20
    """Number of held-out rows in the evaluation, for each base, rule and width."""
