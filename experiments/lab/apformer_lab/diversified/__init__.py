"""Translators that search with a memory of training pairs and minimum Bayes risk.

Everything else is as in `apformer.tasks.translation`.
"""

# ruff: noqa: F403, F405, the names of the protocol of a task

from dataclasses import dataclass, replace

from apformer.flags import require
from apformer.settings import Settings
from apformer.tasks import translation
from apformer.tasks.translation import *
from apformer.tasks.translation import training
from apformer_lab.diversified.evaluation import evaluate, example, page  # noqa: F401

del translate  # noqa: F821, it ignores mbr and memory


@dataclass(frozen=True)
class Options(translation.Options):
    """Training of an encoder-decoder on pairs of sentences, and its search for translations."""

    mbr: int = 0
    """Minimum Bayes risk: number of the best beams to compare. The translation is the one most like the others. With 0,
    it is the best beam."""
    memory: int = 0
    """Number of training pairs that each sentence looks up while it is translated: those whose sources have most in
    common with it. With 0, none. A pair with exactly the same source is left out."""


def diversified(source: str | None = None, init_from: str | None = None) -> Settings:
    """Return the settings of recipe `translate`, for the flags of this task."""
    settings = translation.RECIPES["translate"](source, init_from)
    return replace(settings, task="diversified", options=Options(**vars(settings.options)))


RECIPES = {"diversified": diversified}
NOT_COMPILED = translation.NOT_COMPILED | {"options": (*translation.NOT_COMPILED["options"], "mbr", "memory")}


def check(settings: Settings) -> int:
    """Return the longest sentence, in tokens. Raises UserError (exit USAGE) that names the flag and what fits."""
    check_search(settings.options)
    return training.check(settings)


def check_search(options: Options) -> None:
    """Check the flags of the search. Raises UserError (exit USAGE) that names the flag and what fits."""
    fits = options.mbr == 0 or 2 <= options.mbr <= options.beams
    require("mbr", fits, options, f"0, or 2 to {options.beams}, or more --beams")
    require("memory", 0 <= options.memory < 2**31, options, "0 to 2147483647")
