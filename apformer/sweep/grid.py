"""Flags with several values, and the combinations they stand for.

    --position sinusoidal,relative --window None,9        four combinations

Commas separate values. A value may bring flags of its own: `--position "relative,sinusoidal --position_offset 9"`.
Values of the numbers that live in the state (`optimizer.Config.hyper`) share a program; others make one each.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from apformer import optimizer, tasks
from apformer.errors import USAGE, UserError
from apformer.runs import recipes
from apformer.settings import Settings

PROGRAM = "apformer sweep"
OWN = ("no_certify",)  # flags that are not of `apformer train`

Flags = dict[str, str | list[str] | None]


class Program(NamedTuple):
    """A program that is compiled and trained as one: its settings differ in `hyper` alone, each with all its seeds."""

    folder: str
    combinations: list[dict[str, str]]  # {flag: value} of each of the settings
    settings: list[Settings]

    @property
    def joint(self) -> Settings:
        """Return the settings of the run of all members: seeds within hyper-parameters."""
        first = self.settings[0]
        members = len(self.settings) * first.training.members
        return replace(first, training=replace(first.training, members=members))


def read(args: Sequence[str]) -> Flags:
    """Return {flag: its value, a list of its values, or None if it has none}, by name.

    Raises:
        UserError: Exit code USAGE, for a word that belongs to no flag.
    """
    flags, flag = {}, None
    for word in (part for arg in args for part in (arg.split("=", 1) if arg.startswith("--") else [arg])):
        if word.startswith("--"):
            flag = word[2:].replace("-", "_")
            flags[flag] = None
        elif flag is None or flags[flag] is not None:
            raise UserError(f"{word} belongs to no flag: give --flag value, several values separated by commas", USAGE)
        else:
            flags[flag] = word.split(",") if "," in word and flag != "run_dir" else word
    return dict(sorted(flags.items()))


def command(flags: Flags) -> str:
    """Return the command line that gives these flags."""
    words = ((f"--{flag}", ",".join(v) if isinstance(v, list) else v) for flag, v in flags.items())
    return shlex.join([*PROGRAM.split(), *(word for pair in words for word in pair if word is not None)])


def name(combination: dict[str, str]) -> str:
    """Return a combination in words: position relative, window 9."""
    return ", ".join(f"{flag} {value}" for flag, value in combination.items()) or "no flag varied"


def programs(flags: Flags) -> list[Program]:
    """Return the programs that train every combination. Raises UserError that names the one that no run can follow."""
    varied = {flag: values for flag, values in flags.items() if isinstance(values, list)}
    fixed = {flag: value for flag, value in flags.items() if flag not in (*varied, *OWN)}
    numbers = {flag: varied.pop(flag) for flag in [*varied] if flag in optimizer.Config().hyper()}
    found = []
    for number, shared in enumerate(_choices(varied), 1):
        combinations = [shared | chosen for chosen in _choices(numbers)]
        folder = "-".join([f"{number:02d}", ",".join(f"{flag}={value}" for flag, value in shared.items())]).rstrip("-")
        settings = [_settings(fixed, combination) for combination in combinations]
        found.append(Program(re.sub(r"[^\w.,=-]+", "_", folder), combinations, settings))
    return found


def _choices(varied: dict[str, list[str]]) -> list[dict[str, str]]:
    return [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]


def _settings(fixed: dict[str, str | None], combination: dict[str, str]) -> Settings:
    words = [word for flag, value in fixed.items() for word in (f"--{flag}", value) if word is not None]
    for flag, value in combination.items():  # which may be a switch, or bring flags of its own
        switches = {"True": [f"--{flag}"], "False": [f"--no_{flag}"]}
        words += switches.get(value) or [f"--{flag}", *(value.split() or [value])]
    try:
        settings = recipes.parse(words, PROGRAM)
        task = tasks.load(settings.task)
        for flag, given in (("average", settings.training.average > 1), ("init_from", task.init_from(settings))):
            if given:
                raise UserError(f"--{flag} is no flag of a sweep, which measures new models at the end: drop it", USAGE)
        if hasattr(task, "suites") and not any(word.startswith("--test_sequences") for word in words):
            settings = replace(settings, options=replace(settings.options, test_sequences=task.suites.SEQUENCES))
        settings, _ = task.load(settings)
    except UserError as error:
        raise UserError(f"{name(combination)}: {error}" if combination else str(error), error.exit_code) from None
    return replace(settings, training=replace(settings.training, run_dir=None))
