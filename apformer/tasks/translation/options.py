"""Training of an encoder-decoder on pairs of sentences, and its search for translations."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Training of an encoder-decoder on pairs of sentences, and its search for translations."""

    init_from: str | None = None
    """Run of a translator whose model is trained further, with its vocabulary. The default is a new model."""
    label_smoothing: float = 0.1
    """Share of the probability of each target token that is spread over the vocabulary."""
    beams: int = 5
    """Number of beams in the search for translations. With 1, the most likely token is always taken."""
    alpha: float = 0.6
    """Length penalty of the search: 0 for none, more for longer translations."""
