"""The settings of a run: every flag of `apformer train`, and the recipes that say where the flags start.

- exact   the model that comes to continue progressions exactly: two layers, eight heads, attention over a window that
          ends just before the same place a term earlier, with a relative position table and a sink
- sketch  the plain sketch the project began from, literally: `model.Config()`
- recurrent  an RNN, GRU or LSTM on the same task
- digits  terms of many widths, positions relative to the width: a model for terms of more digits than it was trained on
"""

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Literal, get_args, get_origin

from apformer import flags, model
from apformer import recurrent as recurrent_model
from apformer.data import progressions, wide
from apformer.data.progressions import Config as Data
from apformer.data.tokenizer import VOCABULARY
from apformer.data.wide import Config as Wide
from apformer.errors import CHECKPOINT, USAGE, UserError
from apformer.model import Config as Model
from apformer.optimizer import Config as Optimizer
from apformer.recurrent import Config as Recurrent


@dataclass(frozen=True)
class Training:
    """How long to train, on what, and where to keep it."""

    recipe: Literal["exact", "sketch", "recurrent", "digits"] = "exact"
    """Where the other flags start."""
    steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 128
    """Rows a step."""
    crop_terms: int = 4
    """Terms of a row in training; the rest is cut off."""
    hard_share: float = 0.0
    """Share of rows that are the hardest of four times as many, cut from anywhere or from where carries run far."""
    position_offset: int = 0
    """Training rows begin at a random position up to this, so that later positions are not new (transformers)."""
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
    test_sequences: int = 10_000
    """Held-out progressions of the evaluation."""
    dataset: str | None = None
    """Train on a text file, a progression a line, instead of fresh draws."""
    run_dir: str | None = None
    """A new directory for the run; runs/<UTC time>-<recipe> if not given."""


@dataclass(frozen=True)
class Settings:
    """A whole run: `config.json` holds it."""

    training: Training = Training()
    model: Model | Recurrent = Model()
    data: Data | Wide = Data()
    optimizer: Optimizer = Optimizer()


def exact(digits):
    """The recipe for D digits: all that the circuit of `circuit.py` has to see, from the same place a term before."""
    # Of few digits most is in the first two terms, which are hard to predict; of many, in carries, which are rare.
    few, many = Training(batch_size=192, hard_share=0.2), Training(hard_share=0.4, steps=6000, save_every=1000)
    return Settings(
        few if digits <= 3 else many,
        Model(
            n_layers=2,
            n_heads=8,
            position="relative",
            window=digits + 3,
            output_projection=True,
            attention_sink=True,
            final_norm=True,
        ),
        _data(digits),
        Optimizer(rule="muon", learning_rate=4e-3, weight_decay=0.1),
    )


def _data(digits):
    return Data(digits=digits, max_difference=min(500, 10**digits - 1))


def sketch(digits):
    """The sketch, with nothing but its training chosen."""
    training = Training(recipe="sketch", steps=20_000, batch_size=64, crop_terms=16, save_every=1000)
    return Settings(training, Model(), _data(digits))


def recurrent(digits):
    """An RNN, GRU or LSTM (`--cell`) on the task of the exact recipe."""
    training = Training(recipe="recurrent", steps=4000, crop_terms=16, hard_share=0.25)
    return Settings(training, Recurrent(d_model=128), _data(digits), Optimizer(learning_rate=4e-3))


def digits(most, order):
    """Terms of up to `most` digits; what a carry needs is near, or, most significant digit first, looked for ahead."""
    ahead = order == "msb"
    return Settings(
        Training(recipe="digits", steps=4000 if ahead else 2000, hard_share=0.4, save_every=1000, test_sequences=500),
        Model(
            n_layers=2,
            n_heads=8,
            position="periodic",
            window=2 if ahead else 1,
            look_between=2 if ahead else 0,
            similarity="geometric" if ahead else "scaled_dot",
            attention_sink=not ahead,
            look_noise=1.5 if ahead else 0.0,
            look_sharpness=3.0 if ahead else 1.0,
            output_projection=True,
            final_norm=True,
        ),
        Wide(digits=most, order=order),
        Optimizer(rule="muon", learning_rate=4e-3, weight_decay=0.1),
    )


def parse(args):
    """The settings that flags ask for. Raises UserError (exit USAGE) that names the flag and what fits."""
    recipe, most = flags.value(args, "recipe"), flags.value(args, "digits") or ""
    if recipe == "digits":
        lsb = flags.value(args, "order") == "lsb"
        settings = digits(int(most) if re.fullmatch("[1-9][0-9]{0,2}", most) else 6, "lsb" if lsb else "msb")
    else:
        start = {"sketch": sketch, "recurrent": recurrent}.get(recipe, exact)
        settings = start(int(most) if re.fullmatch("[1-9]", most) else 3)
    # Of the parts that there are in this recipe, since an RNN has other flags than a transformer.
    parts = [(name, type(part), part) for name, part in vars(settings).items()]
    try:
        parsed = flags.parse(dataclasses.make_dataclass("Settings", parts, frozen=True), args, "apformer train")
    except UserError as error:
        raise UserError(_what_fits(str(error)), USAGE) from None
    settings = Settings(**vars(parsed))
    check(settings)
    return settings


def check(settings):
    """Refuse settings that no run can follow. Raises UserError (exit USAGE) that names the flag and what fits."""
    (wide if isinstance(settings.data, Wide) else progressions).check(settings.data)
    train, architecture, optimizer = settings.training, settings.model, settings.optimizer
    for part, whole in (
        (train, ("steps", "batch_size", "members", "log_every", "save_every", "keep", "test_sequences")),
        (architecture, ("d_model", "n_heads", "n_layers", "d_ff", "window", "max_len")),
    ):
        for flag in whole:
            value = getattr(part, flag, None)
            _require(flag, value is None or 1 <= value < 2**31, part, "1 to 2147483647")
    _require("crop_terms", 3 <= train.crop_terms < 2**31, train, "3 to 2147483647")
    _require("hard_share", 0 <= train.hard_share < 1, train, "at least 0 and less than 1")
    _require("position_offset", 0 <= train.position_offset < 2**31, train, "0 to 2147483647")
    _require("seed", 0 <= train.seed <= 2**31 - train.members, train, f"0 to {2**31 - train.members}")
    _require("warmup_steps", 0 <= optimizer.warmup_steps < 2**31, optimizer, "0 to 2147483647")
    _require("learning_rate", 0 < optimizer.learning_rate < 10, optimizer, "more than 0 and less than 10")
    _require("weight_decay", 0 <= optimizer.weight_decay < 10, optimizer, "at least 0 and less than 10")
    _require("beta1", 0 <= optimizer.beta1 < 1, optimizer, "at least 0 and less than 1")
    _require("beta2", 0 <= optimizer.beta2 < 1, optimizer, "at least 0 and less than 1")
    _require("max_grad_norm", 0 < optimizer.max_grad_norm < math.inf, optimizer, "more than 0")
    _require("vocab_size", architecture.vocab_size == len(VOCABULARY), architecture, f"{len(VOCABULARY)}")
    if train.save_every % train.log_every:
        raise UserError(f"--save_every {train.save_every} is no multiple of --log_every {train.log_every}", USAGE)
    if isinstance(architecture, Model):
        _check_transformer(settings)
    elif train.position_offset:
        raise UserError(f"--position_offset {train.position_offset} is for transformers: drop it", USAGE)


def _check_transformer(settings):
    architecture, terms = settings.model, settings.training.crop_terms
    terms = terms if isinstance(settings.data, Wide) else progressions.most_terms(settings.data)
    longest = terms * (settings.data.digits + 1) - 1
    _require("norm_epsilon", 0 < architecture.norm_epsilon < 1, architecture, "more than 0 and less than 1")
    longest += settings.training.position_offset
    _require("separator", architecture.separator == VOCABULARY[" "], architecture, f"{VOCABULARY[' ']}")
    if architecture.position == "learned" and architecture.max_len < longest:
        raise UserError(f"--max_len {architecture.max_len} ends before the longest row: give {longest} or more", USAGE)


def _require(flag, fits, part, what_fits):
    if not fits:
        raise UserError(f"--{flag} {getattr(part, flag)} is out of range: give {what_fits}", USAGE)


def module(cfg):
    """The module that a model's Config is of, for its init, apply, init_cache and extend."""
    return model if isinstance(cfg, Model) else recurrent_model


def to_dict(settings):
    """Settings as nested dicts for `config.json`."""
    return dataclasses.asdict(settings)


def from_dict(config, source):
    """Settings from `config.json`. Raises UserError (exit CHECKPOINT) that names the file and the part at fault."""
    try:
        settings = Settings(
            training=_typed(Training(**config["training"])),
            model=_typed((Recurrent if "cell" in config["model"] else Model)(**config["model"])),
            data=_typed((Wide if "order" in config["data"] else Data)(**config["data"])),
            optimizer=_typed(Optimizer(**config["optimizer"])),
        )
        check(settings)
    except (KeyError, TypeError, ValueError, UserError) as error:
        sentence = f"{source} is damaged or of another version of apformer ({error}): restore it, or train anew"
        raise UserError(sentence, CHECKPOINT) from None
    return settings


def _typed(part):
    """The dataclass, if every value is of the type that its field names; ValueError if not."""
    for field in dataclasses.fields(part):
        value, kind = getattr(part, field.name), float | int if field.type is float else field.type
        if not (value in get_args(kind) if get_origin(kind) is Literal else isinstance(value, kind)):
            raise ValueError(f"{field.name} is {value!r}")
    return part


def _what_fits(sentence):
    """The sentence of a model.Config that cannot be, with flags and the numbers that fit."""
    numbers = re.search(r"d_model (\d+) is not a multiple of n_heads (\d+)", sentence)
    if numbers:
        d_model, n_heads = map(int, numbers.groups())
        fitting = ", ".join(str(n) for n in range(1, min(d_model, 128) + 1) if d_model % n == 0)
        return f"--n_heads {n_heads} does not divide --d_model {d_model}: give --n_heads {fitting}"
    names = "|".join(field.name for field in dataclasses.fields(Model))
    return re.sub(
        rf"^error parsing model: ((?:{names})\b)?", lambda match: f"--{match[1]}" if match[1] else "", sentence
    )
