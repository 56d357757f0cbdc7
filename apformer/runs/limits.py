"""Which settings a run can follow."""

import math

from apformer import model
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.tasks.digits import generator as wide
from apformer.tasks.progressions import generator
from apformer.tasks.text import corpus as text
from apformer.tasks.translation import corpus
from apformer.tokenizers.digits import VOCABULARY

SIZES = ("d_model", "n_heads", "n_layers", "n_encoder_layers", "n_decoder_layers", "d_ff", "window", "max_len")


def check(settings):
    """Refuse settings that no run can follow. Raises UserError (exit USAGE) that names the flag and what fits."""
    kinds = {wide.Config: wide, text.Config: text, corpus.Config: corpus}
    kinds.get(type(settings.data), generator).check(settings.data)
    train, architecture, optimizer = settings.training, settings.model, settings.optimizer
    _require_positive(train, ("steps", "batch_size", "members", "log_every", "save_every", "keep"))
    _require_positive(architecture, SIZES)
    require("seed", 0 <= train.seed <= 2**31 - train.members, train, f"0 to {2**31 - train.members}")
    require("patience", 0 <= train.patience < 2**31, train, "0 to 2147483647")
    require("warmup_steps", 0 <= optimizer.warmup_steps < 2**31, optimizer, "0 to 2147483647")
    require("learning_rate", 0 < optimizer.learning_rate < 10, optimizer, "more than 0 and less than 10")
    require("weight_decay", 0 <= optimizer.weight_decay < 10, optimizer, "at least 0 and less than 10")
    require("beta1", 0 <= optimizer.beta1 < 1, optimizer, "at least 0 and less than 1")
    require("beta2", 0 <= optimizer.beta2 < 1, optimizer, "at least 0 and less than 1")
    require("max_grad_norm", 0 < optimizer.max_grad_norm < math.inf, optimizer, "more than 0")
    if train.save_every % train.log_every:
        raise UserError(f"--save_every {train.save_every} is no multiple of --log_every {train.log_every}", USAGE)
    if hasattr(architecture, "norm_epsilon"):
        require("norm_epsilon", 0 < architecture.norm_epsilon < 1, architecture, "more than 0 and less than 1")
    kinds = {corpus.Config: _check_pairs, text.Config: _check_text}
    longest = kinds.get(type(settings.data), _check_progressions)(settings)
    if getattr(architecture, "position", None) == "learned" and architecture.max_len < longest:
        raise UserError(f"--max_len {architecture.max_len} ends before the longest row: give {longest} or more", USAGE)


def _check_pairs(settings):
    """Most tokens of a sentence."""
    teaching = settings.drawing
    _require_positive(teaching, ("accumulate", "average", "beams"))
    require("label_smoothing", 0 <= teaching.label_smoothing < 1, teaching, "at least 0 and less than 1")
    require("alpha", 0 <= teaching.alpha < 100, teaching, "at least 0 and less than 100")
    if teaching.average > settings.training.keep:
        kept = f"--average {teaching.average} is of more checkpoints than --keep {settings.training.keep}"
        raise UserError(f"{kept}: keep as many", USAGE)
    return settings.data.longest


def _check_text(settings):
    """Most tokens of a row."""
    options, d_model = settings.drawing, settings.model.d_model
    _require_positive(options, ("accumulate",))
    require("lora_rank", 0 <= options.lora_rank <= d_model, options, f"0 to {d_model}, the width of the model")
    require("lora_alpha", 0 < options.lora_alpha < 1e6, options, "more than 0 and less than 1000000")
    if options.remat and options.architecture == "recurrent":
        raise UserError("--remat is for transformers: drop it", USAGE)
    if options.init_from is not None and options.architecture == "transformer":
        places, fits = settings.model.max_len, settings.model.position != "learned"
        where = f"at most {places}, the positions of {options.init_from}"
        require("context", fits or settings.data.context <= places, settings.data, where)
    return settings.data.context


def _check_progressions(settings):
    """Most tokens of a row."""
    drawing, architecture = settings.drawing, settings.model
    _require_positive(drawing, ("mined_per_hard", "test_sequences"))
    require("crop_terms", 3 <= drawing.crop_terms < 2**31, drawing, "3 to 2147483647")
    require("hard_fraction", 0 <= drawing.hard_fraction < 1, drawing, "at least 0 and less than 1")
    require("prefix_rows", 0 <= drawing.prefix_rows < 2**31, drawing, "0 to 2147483647")
    require("position_offset", 0 <= drawing.position_offset < 2**31, drawing, "0 to 2147483647")
    require("vocab_size", architecture.vocab_size == len(VOCABULARY), architecture, f"{len(VOCABULARY)}")
    if isinstance(architecture, model.Config):
        if architecture.position == "periodic":
            options = architecture.position_options
            require("separator", options.separator == VOCABULARY[" "], options, f"{VOCABULARY[' ']}")
    elif drawing.position_offset:
        raise UserError(f"--position_offset {drawing.position_offset} is for transformers: drop it", USAGE)
    any_width = isinstance(settings.data, wide.Config)
    terms = drawing.crop_terms if any_width else generator.most_terms(settings.data)
    return terms * (settings.data.digits + 1) - 1 + drawing.position_offset


def _require_positive(part, names):
    for flag in names:
        value = getattr(part, flag, None)
        require(flag, value is None or 1 <= value < 2**31, part, "1 to 2147483647")
