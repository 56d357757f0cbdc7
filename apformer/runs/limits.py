"""Refuse settings that no run can follow, whatever its task."""

import dataclasses
import math
from typing import Any

from apformer import tasks
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.settings import Settings, architecture_of

WHOLE, FROM_ZERO = (1, 2**31, "1 to 2147483647"), (0, 2**31, "0 to 2147483647")
SHARE, ABOVE_ZERO = (0, 1, "at least 0 and less than 1"), math.ulp(0)
RANGES = {  # of training and optimizer: least, the end that is too large, and what fits
    **dict.fromkeys(("steps", "batch_size", "accumulate", "members", "log_every", "save_every"), WHOLE),
    **dict.fromkeys(("keep", "average", "muon_every"), WHOLE),
    **dict.fromkeys(("patience", "warmup_steps"), FROM_ZERO),
    **dict.fromkeys(("ema", "beta1", "beta2"), SHARE),
    "learning_rate": (ABOVE_ZERO, 10, "more than 0 and less than 10"),
    "weight_decay": (0, 10, "at least 0 and less than 10"),
    "max_grad_norm": (ABOVE_ZERO, math.inf, "more than 0"),
}


def check(settings: Settings) -> None:
    """Refuse settings that no run can follow.

    Raises:
        UserError: Exit code USAGE; it names the flag and what fits.
    """
    run, rule = settings.training, settings.optimizer
    for flag, (least, end, fits) in RANGES.items():
        part = run if hasattr(run, flag) else rule
        require(flag, least <= getattr(part, flag) < end, part, fits)
    require("seed", 0 <= run.seed <= 2**31 - run.members, run, f"0 to {2**31 - run.members}")
    require("min_lr", 0 <= rule.min_lr <= rule.learning_rate, rule, f"0 to --learning_rate, {rule.learning_rate}")
    if run.save_every % run.log_every:
        fits = math.gcd(run.save_every, run.log_every)
        fault = f"--save_every {run.save_every} is no multiple of --log_every {run.log_every}"
        raise UserError(f"{fault}: give --log_every {fits}", USAGE)
    if run.average > run.keep:
        kept = f"--average {run.average} is of more checkpoints than --keep {run.keep}"
        raise UserError(f"{kept}: keep as many", USAGE)
    if run.remat and settings.architecture not in ("model", "seq2seq"):
        raise UserError("--remat is for transformers: drop it", USAGE)
    _check_sizes(settings.model)
    longest = tasks.load(settings.task).check(settings)
    most = architecture_of(settings).max_tokens(settings.model)
    if most is not None and most < longest:
        raise UserError(f"--max_len {most} ends before the longest row: give {longest} or more", USAGE)


def _check_sizes(model: Any) -> None:
    """Refuse a whole number of a model's Config that fits no axis of an array."""
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.type in (int, int | None) and value is not None:
            require(field.name, 1 <= value < 2**31, model, "1 to 2147483647")
    epsilon = vars(model).get("norm_epsilon", 1e-5)
    require("norm_epsilon", 0 < epsilon < 1, model, "more than 0 and less than 1")
