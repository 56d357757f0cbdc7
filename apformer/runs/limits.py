"""Which settings a run can follow, whatever its task."""

import dataclasses
import math

from apformer import tasks
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.settings import architecture_of


def check(settings):
    """Refuse settings that no run can follow. Raises UserError (exit USAGE) that names the flag and what fits."""
    run, rule = settings.training, settings.optimizer
    for flag in ("steps", "batch_size", "accumulate", "members", "log_every", "save_every", "keep", "average"):
        require(flag, 1 <= getattr(run, flag) < 2**31, run, "1 to 2147483647")
    require("seed", 0 <= run.seed <= 2**31 - run.members, run, f"0 to {2**31 - run.members}")
    require("patience", 0 <= run.patience < 2**31, run, "0 to 2147483647")
    require("ema", 0 <= run.ema < 1, run, "at least 0 and less than 1")
    require("warmup_steps", 0 <= rule.warmup_steps < 2**31, rule, "0 to 2147483647")
    require("learning_rate", 0 < rule.learning_rate < 10, rule, "more than 0 and less than 10")
    require("min_lr", 0 <= rule.min_lr <= rule.learning_rate, rule, f"0 to --learning_rate, {rule.learning_rate}")
    require("weight_decay", 0 <= rule.weight_decay < 10, rule, "at least 0 and less than 10")
    require("muon_every", 1 <= rule.muon_every < 2**31, rule, "1 to 2147483647")
    require("beta1", 0 <= rule.beta1 < 1, rule, "at least 0 and less than 1")
    require("beta2", 0 <= rule.beta2 < 1, rule, "at least 0 and less than 1")
    require("max_grad_norm", 0 < rule.max_grad_norm < math.inf, rule, "more than 0")
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


def _check_sizes(model):
    """Every whole number of a model's Config fits an array's axis."""
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.type in (int, int | None) and value is not None:
            require(field.name, 1 <= value < 2**31, model, "1 to 2147483647")
    epsilon = vars(model).get("norm_epsilon", 1e-5)
    require("norm_epsilon", 0 < epsilon < 1, model, "more than 0 and less than 1")
