"""How an encoder-decoder is taught pairs of sentences, and how it translates."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """How an encoder-decoder is taught pairs of sentences, and how it translates."""

    init_from: str | None = None
    """Run of a translator whose model is trained further, with its vocabulary. The default is a new model."""
    label_smoothing: float = 0.1
    """Share of the probability of each target token that is spread over the vocabulary."""
    r_drop: float = 0.0
    """Weight of the divergence between two passes over a batch, each with its own dropout (R-Drop). With 0, there is
    one pass. A second pass doubles the time of a step."""
    beams: int = 5
    """Number of beams in the search for translations. With 1, the most likely token is always taken."""
    alpha: float = 0.6
    """Length penalty of the search: 0 for none, more for longer translations."""
    mbr: int = 0
    """Minimum Bayes risk: number of the best beams to compare. The translation is the one most like the others. With 0,
    it is the best beam. It needs as many --beams or more. Fewer are compared where the search keeps fewer."""
    memory: int = 0
    """Number of training pairs that each sentence looks up while it is translated: those whose sources have most in
    common with it. With 0, none. A pair of the very same source is left out."""
    memory_share: float = 0.5
    """Share of the probability of each token that comes from the pairs looked up, with --memory."""
    memory_temperature: float = 40.0
    """Squared distance of two decoder states at which a token looked up counts 1/e as much, with --memory."""
