"""The settings of a run, part by part: every flag of `apformer train`, and what config.json holds."""

from dataclasses import dataclass
from typing import Literal

from apformer.model import Config as Model
from apformer.optimizer import Config as Optimizer
from apformer.recurrent import Config as Recurrent
from apformer.seq2seq import Config as Seq2seq
from apformer.tasks.digits.generator import Config as Wide
from apformer.tasks.progressions.generator import Config as Data
from apformer.tasks.text.corpus import Config as Text
from apformer.tasks.translation.corpus import Config as Pairs


@dataclass(frozen=True)
class Training:
    """How long to train, and where to keep it."""

    recipe: Literal["exact", "sketch", "recurrent", "digits", "baby_gpt", "baby_gpt_cpu", "translate", "base"] = "exact"
    """Where the other flags start."""
    steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 128
    """Rows a step."""
    seed: int = 0
    """Of the weights, the batches and dropout."""
    members: int = 1
    """Models trained at once, with seeds seed, seed + 1, ..."""
    member_mode: Literal["auto", "map", "vmap"] = "auto"
    """One member after the other (map: bit-equal to runs alone) or all at once (vmap); auto: map on a CPU."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the forward and backward pass; parameters stay float32."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl, all run in one compiled loop."""
    save_every: int = 500
    """Steps between checkpoints; a multiple of log_every."""
    keep: int = 3
    """Checkpoints kept besides the best."""
    patience: int = 0
    """Stop early after so many checkpoints none of which was the best; 0: never."""
    run_dir: str | None = None
    """A new directory for the run; runs/<UTC time>-<recipe> if not given."""


@dataclass(frozen=True)
class Drawing:
    """Which progressions a training step sees, and an evaluation."""

    crop_terms: int = 4
    """Terms of a row in training; the rest is cut off."""
    hard_share: float = 0.0
    """Share of rows that are the hardest of many, cut from anywhere or from where carries run far."""
    candidates: int = 4
    """For each of these, of which the hardest is kept."""
    opening_rows: int = 0
    """Further rows a step, cut to the two terms that cannot be predicted, only how likely they are."""
    position_offset: int = 0
    """Training rows begin at a random position up to this, so that later positions are not new (transformers)."""
    dataset: str | None = None
    """Train on a text file, a progression a line, instead of fresh draws."""
    test_sequences: int = 10_000
    """Held-out progressions of the evaluation."""


@dataclass(frozen=True)
class Teaching:
    """How an encoder-decoder is taught pairs of sentences."""

    label_smoothing: float = 0.1
    """Share of each target token that is spread over the vocabulary."""
    accumulate: int = 1
    """Batches whose gradients are averaged before a step."""
    average: int = 1
    """The model is the mean of so many newest checkpoints; 1: the best one."""
    beams: int = 5
    """Of the search for the translations that are scored."""
    alpha: float = 0.6
    """Its length penalty."""


@dataclass(frozen=True)
class Settings:
    """A whole run: `config.json` holds it."""

    training: Training = Training()
    model: Model | Recurrent | Seq2seq = Model()
    data: Data | Wide | Text | Pairs = Data()
    optimizer: Optimizer = Optimizer()
    drawing: Drawing | Teaching | None = Drawing()
