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

    recipe: Literal[
        "exact", "bayes", "sketch", "recurrent", "digits", "text", "baby_gpt", "baby_gpt_cpu", "translate", "base"
    ] = "exact"
    """Where the other flags start. bayes: exact, with rows of two terms that change the loss (--prefix_rows)."""
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
class Options:
    """Which progressions a training step sees, and how many an evaluation has."""

    crop_terms: int = 4
    """Terms of a training row. Longer progressions are cropped, so that a step costs less."""
    hard_fraction: float = 0.0
    """Fraction of the batch that is mined: crops whose worst character costs most. Their first two terms are given."""
    mined_per_hard: int = 4
    """Candidates drawn for each mined row. The hardest of all candidates are kept."""
    prefix_rows: int = 0
    """Extra rows per step with only the first two terms, for a lower loss on these. They get 4/5 of the loss,
    and digits that only held-out lines have are masked out of their softmax."""
    position_offset: int = 0
    """Training rows begin at a random position up to this, so that later positions are trained too (transformers)."""
    dataset: str | None = None
    """Text file to train on, one progression a line. Without it, each step draws fresh rows."""
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
class TextOptions:
    """Which model learns a text, where it begins, and what of it is trained."""

    architecture: Literal["transformer", "recurrent"] = "transformer"
    """The kind of model; --architecture recurrent has --cell lstm, gru or rnn."""
    init_from: str | None = None
    """Train this GPT-2 folder or run further, by its tokenizer. For GPT-2: `hf download gpt2 --local-dir gpt2`."""
    lora_rank: int = 0
    """Train low-rank adapters of this rank, and keep the weights that the model began with; 0: train all weights."""
    lora_alpha: float = 16.0
    """The product of an adapter's two factors is multiplied by lora_alpha / lora_rank."""
    accumulate: int = 1
    """How many times --batch_size rows make up a step, one after the other; their gradients are averaged."""
    remat: bool = False
    """Compute the inside of the blocks a second time for the gradient: less memory, more time (transformers)."""


@dataclass(frozen=True)
class Settings:
    """A whole run: `config.json` holds it."""

    training: Training = Training()
    model: Model | Recurrent | Seq2seq = Model()
    data: Data | Wide | Text | Pairs = Data()
    optimizer: Optimizer = Optimizer()
    drawing: Options | Teaching | TextOptions = Options()
