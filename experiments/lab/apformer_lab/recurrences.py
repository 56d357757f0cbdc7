"""Linear recurrences as fixed-width text, 03 05 08 13 21: Fibonacci, doubling, alternating progressions and others.

    x_n = a x_{n-1} + b x_{n-2} + c  modulo 10^D

With several rules, a row begins with the number of its rule: 1 03 05 08 13 21. Pairs of neighbouring terms are split
into training, validation and test.
"""

# ruff: noqa: F403, F405, the names of the protocol of a task

from dataclasses import dataclass

from apformer import model, optimizer
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.settings import Settings, Training
from apformer_lab import rows, sparse, training
from apformer_lab.proof import recurrences as contexts
from apformer_lab.protocol import *

ARCHITECTURES = ("model", "sparse")


@dataclass(frozen=True)
class Config:
    """The generator of recurrences."""

    digits: int = 2
    """Digits D of a term."""
    rules: tuple[str, ...] = ("fibonacci",)
    """Rules: fibonacci, doubling, alternating, progression, or numbers a,b,c for a x_{n-1} + b x_{n-2} + c."""

    @property
    def form(self) -> rows.Format:
        """The format of rows."""
        headings = tuple((number,) for number in range(1, len(self.rules) + 1)) if len(self.rules) > 1 else ()
        return rows.Format(
            self.digits,
            self.rules,
            tuple(map(contexts.numbers, self.rules)),
            lowest_first=False,
            headings=headings,
            widths=False,
            split=True,
        )


def check(settings: Settings) -> int:
    """Return the number of tokens of the longest row. Raises UserError (exit USAGE) that names the flag and remedy."""
    cfg = settings.data
    require("digits", 1 <= cfg.digits <= 4, cfg, "1 to 4")
    if not 1 <= len(cfg.rules) <= 9:
        raise UserError(f"--rules has {len(cfg.rules)} rules: give 1 to 9", USAGE)
    for rule in cfg.rules:
        try:
            numbers = contexts.numbers(rule)
        except ValueError:
            names = ", ".join(rows.RULES)
            raise UserError(f"--rules {rule} is not a rule: give {names}, or numbers such as 1,1,0", USAGE) from None
        if max(map(abs, numbers)) > contexts.LARGEST:
            fits = f"give numbers from -{contexts.LARGEST} to {contexts.LARGEST}"
            raise UserError(f"--rules {rule} is out of range: {fits}", USAGE)
    if len({*map(contexts.numbers, cfg.rules)}) < len(cfg.rules):
        raise UserError(f"--rules {' '.join(cfg.rules)} gives a rule twice: give each once", USAGE)
    return training.check(settings)


def recurrences(digits: int = 2, rules: tuple[str, ...] = ("fibonacci",)) -> Settings:
    """Linear recurrences, such as Fibonacci's: one rule or several.

    The model sees the two terms before, as in the exact recipe, and, with several rules, the number of the rule.
    """
    window, sizes = max(digits, 1) + 3, {"n_layers": 2, "n_heads": 8, "d_ff": 128, "attention_sink": True}
    if len(rules) == 1:
        kind = "model"
        architecture = model.Config(
            position="relative", window=window, output_projection=True, final_norm=True, **sizes
        )
    else:
        kind, offsets = "sparse", tuple(range(window))
        architecture = sparse.Config(pattern="fixed_offsets", offsets=offsets, heading=1, **sizes)
    run = Training(steps=2000 if len(rules) == 1 else 4000, batch_size=64)
    rule = optimizer.Config(rule="muon", learning_rate=8e-3, weight_decay=0.1)
    options = Options(crop_terms=5, hard_fraction=0.5, mined_per_hard=8, test_sequences=1000)
    return Settings("recurrences", kind, run, architecture, Config(digits, rules), options, rule)


RECIPES = {"recurrences": recurrences}
