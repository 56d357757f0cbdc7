"""Options of the words that are shown when training ends."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Options of the words that are shown when training ends."""

    words: str | None = None
    """Words whose neighbours are shown, separated by commas. The default is those of frequency ranks 1, 2, 4, 8, ..."""
    neighbours: int = 8
    """Number of neighbours shown for each of these words."""
