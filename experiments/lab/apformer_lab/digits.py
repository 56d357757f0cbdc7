"""Arithmetic progressions with terms of any number of digits: 7 10 13, 0007 0010 0013, or with 100 digits a term."""

# ruff: noqa: F403, F405, the names of the protocol of a task

from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from apformer import optimizer
from apformer.settings import Settings, Training
from apformer_lab import rows, sparse
from apformer_lab.proof import ahead, columns
from apformer_lab.protocol import *


@dataclass(frozen=True)
class Config:
    """The generator of progressions of many widths."""

    digits: int = 6
    """Most digits of a term in training. Each row has a width of its own."""
    order: Literal["msb", "lsb"] = "msb"
    """Order of digits in a term: msb (most significant first) or lsb (least significant first)."""

    @property
    def form(self) -> rows.Format:
        """The format of rows."""
        return rows.Format(self.digits, lowest_first=self.order == "lsb", wraps=False)


def contexts(settings: Settings) -> ModuleType:
    """Return the module that lists every context of a run."""
    return columns if settings.data.order == "lsb" else ahead


def digits(digits: int = 6, order: Literal["msb", "lsb"] = "msb") -> Settings:
    """Arithmetic progressions whose terms have any number of digits.

    The model finds a carry in nearby tokens, or, most significant digit first, by a head that looks ahead.
    """
    architecture = sparse.Config(attention_sink=True)
    if order == "msb":
        architecture = sparse.Config(d_model=32, n_heads=4, n_layers=3, d_ff=64, pattern="ahead", score_noise=1.5)
    run = Training(steps=1000, save_every=500)
    if order == "msb":
        run = Training(steps=4000, until="certified", save_every=500)
    rule = optimizer.Config(rule="muon", learning_rate=4e-3, weight_decay=0.1)
    return Settings("digits", "sparse", run, architecture, Config(digits, order), Options(), rule)


RECIPES = {"digits": digits}
