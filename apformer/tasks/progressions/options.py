"""Options of the rows of training and evaluation."""

from dataclasses import dataclass
from typing import Literal

from apformer.errors import UserError
from apformer.files import FilePath
from apformer.flags import require, require_whole


@dataclass(frozen=True)
class Options:
    """Options of the rows of training and evaluation.

    Attributes:
        crop_terms: Number of terms of a training row. Longer progressions are cropped, so that a step costs less.
        hard_fraction: Fraction of the batch that is mined: crops whose worst character has the highest loss. Their
            first two terms are given.
        mined_per_hard: Candidates drawn for each mined row. The hardest of all candidates are kept.
        prefix_rows: Number of extra rows per step of two terms each. They lower the loss of the first two terms, which
            no rule gives.
        prefix_loss: Loss of the first two terms. plain: their characters count as any other. alone: only the prefix
            rows train them, with 4/5 of the loss, and digits that occur only on held-out lines are masked out of their
            softmax. none: they have weight 0, for models too small to learn more than the rule.
        long_rows: Number of extra rows per step that are not cropped, for models that read a whole row. Their numbers
            of terms are uniform, then they are extended as far as they fit. Their first two terms have weight 0. Half
            of the candidates of mined rows are then crops of such rows, and a candidate near a round number that does
            not fit is replaced by the beginning of an ordinary row. After a failed certificate, half of the extra rows
            end with the next term of a context that it lists; only that term has a weight, as much as crop_terms terms.
        own_positions: Crops keep the positions that they have in their rows. Without it every crop begins at position
            0, which makes no difference to models with relative positions.
        position_offset: Largest random start position of a training row, so that later positions are trained too. A row
            starts where a term may. For transformers only.
        dataset: Text file to train on, one progression a line. Without it, each step draws fresh rows.
        test_sequences: Number of held-out progressions in the evaluation.
    """

    crop_terms: int = 4
    hard_fraction: float = 0.0
    mined_per_hard: int = 4
    prefix_rows: int = 0
    prefix_loss: Literal["plain", "alone", "none"] = "plain"
    long_rows: int = 0
    own_positions: bool = False
    position_offset: int = 0
    dataset: FilePath | None = None
    test_sequences: int = 10_000


def check(options: Options) -> None:
    """Raise UserError (exit USAGE) for an option that is out of range or contradicts another."""
    least = {
        "mined_per_hard": 1,
        "test_sequences": 1,
        "crop_terms": 3,
        "prefix_rows": 0,
        "long_rows": 0,
        "position_offset": 0,
    }
    for flag, number in least.items():
        require_whole(flag, options, number)
    require("hard_fraction", 0 <= options.hard_fraction < 1, options, "at least 0 and less than 1")
    if options.prefix_rows and options.prefix_loss == "none":
        taught = f"--prefix_rows {options.prefix_rows} teaches the first two terms"
        raise UserError(f"{taught}, which cost nothing with --prefix_loss none: give 0")
