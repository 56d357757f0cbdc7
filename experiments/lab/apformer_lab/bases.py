"""Rows by three rules in every base from 2 to 16, least significant digit first: =9 700 010 310.

One model for all: a row begins with its rule and the largest digit of its base.

    =9 700 010 310      an arithmetic progression in base 10, z = 2x - y: 7, 10, 13
    +1 1010 1100        Fibonacci in base 2, z = x + y: 5, 3
    *f 3a 46            doubling in base 16, z = 2x: a3, which does not matter, and 64
"""

# ruff: noqa: F403, F405, the names of the protocol of a task

from dataclasses import dataclass

from apformer import optimizer
from apformer.errors import USAGE, UserError
from apformer.settings import Settings, Training
from apformer_lab import rows, sparse, training
from apformer_lab.proof import columns as contexts  # noqa: F401
from apformer_lab.protocol import *

MARKS = {"progression": "=", "fibonacci": "+", "doubling": "*"}
CHARACTERS = "0123456789abcdef " + "".join(MARKS.values())


@dataclass(frozen=True)
class Config:
    """The generator of rows in many bases."""

    digits: int = 4
    """Most digits of a term in training. Each row has a width of its own."""
    bases: tuple[int, ...] = tuple(range(2, 17))
    """Bases, of which each row has one."""
    rules: tuple[str, ...] = tuple(MARKS)
    """Rules, of which each row has one: progression, fibonacci, doubling."""

    @property
    def form(self) -> rows.Format:
        """The format of rows."""
        headings = tuple((CHARACTERS.index(MARKS[rule]), base - 1) for rule in self.rules for base in self.bases)
        numbers = tuple(rows.RULES[rule] for rule in self.rules)
        return rows.Format(self.digits, self.rules, numbers, self.bases, CHARACTERS, headings=headings)


def check(settings: Settings) -> int:
    """Return the number of tokens of the longest row. Raises UserError (exit USAGE) that names the flag and remedy."""
    cfg = settings.data
    for flag, values, choices in (("bases", cfg.bases, range(2, 17)), ("rules", cfg.rules, MARKS)):
        fault = f"--{flag} {' '.join(map(str, values))} does not fit: give each once, at least one"
        if not values or len({*values}) < len(values) or {*values} - {*choices}:
            raise UserError(f"{fault}, of {', '.join(map(str, choices))}", USAGE)
    return training.check(settings)


def bases() -> Settings:
    """Progressions, Fibonacci and doubling in all bases from 2 to 16, by one model, terms of any number of digits."""
    space = CHARACTERS.index(" ")
    architecture = sparse.Config(len(CHARACTERS), d_ff=128, separator=space, heading=2, attention_sink=True)
    run = Training(steps=4000, save_every=1000)
    rule = optimizer.Config(rule="muon", learning_rate=8e-3, weight_decay=0.1)
    return Settings("bases", "sparse", run, architecture, Config(), Options(crop_terms=6, test_sequences=20), rule)


RECIPES = {"bases": bases}
