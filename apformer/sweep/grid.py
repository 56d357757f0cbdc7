"""Flags with several values, and the combinations they stand for.

    --position sinusoidal,relative --window None,9        four combinations

Commas separate values. A value may bring flags of its own: `--position "relative,sinusoidal --position_offset 9"`.
Values of the numbers that live in the state (`optimizer.Config.hyper`) share a program; others make one each.
"""

import re
import shlex
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from apformer import optimizer, tasks
from apformer.errors import USAGE, UserError
from apformer.runs import recipes
from apformer.settings import Settings

PROGRAM = "apformer sweep"
OWN = ("no_certify",)  # flags that are not of `apformer train`


class Program(NamedTuple):
    """What is compiled and trained as one: settings that differ in nothing but `hyper`, each with all its seeds."""

    folder: str
    combinations: list  # {flag: value} of each of the settings
    settings: list

    @property
    def joint(self):
        """The settings of the run of all members: seeds within hyper-parameters."""
        first = self.settings[0]
        members = len(self.settings) * first.training.members
        return replace(first, training=replace(first.training, members=members))


def read(args):
    """{flag: its value, a list of its values, or None if it has none}, by name. Raises UserError (exit USAGE)."""
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


def command(flags: dict[str, str | list[str] | None]) -> str:
    """Return the command line that gives these flags."""
    words = ((f"--{flag}", ",".join(v) if isinstance(v, list) else v) for flag, v in flags.items())
    return shlex.join([*PROGRAM.split(), *(word for pair in words for word in pair if word is not None)])


def name(combination):
    """A combination in words: position relative, window 9."""
    return ", ".join(f"{flag} {value}" for flag, value in combination.items()) or "no flag varied"


def programs(flags):
    """The programs that train every combination. Raises UserError that names the one that no run can follow."""
    varied = {flag: values for flag, values in flags.items() if isinstance(values, list)}
    numbers = [flag for flag in varied if flag in optimizer.Config().hyper()]
    structure = [flag for flag in varied if flag not in numbers]
    fixed = {flag: value for flag, value in flags.items() if flag not in (*varied, *OWN)}
    found = []
    for number, shared in enumerate(_choices(varied, structure), 1):
        combinations = [shared | chosen for chosen in _choices(varied, numbers)]
        folder = "-".join([f"{number:02d}", ",".join(f"{flag}={value}" for flag, value in shared.items())]).rstrip("-")
        settings = [_settings(fixed, combination, numbers) for combination in combinations]
        found.append(Program(re.sub(r"[^\w.,=-]+", "_", folder), combinations, settings))
    return found


def _choices(varied, names):
    return [dict(zip(names, values, strict=True)) for values in product(*(varied[flag] for flag in names))]


def _settings(fixed: dict, combination: dict[str, str], numbers: list[str]) -> Settings:
    words = [word for flag, value in fixed.items() for word in (f"--{flag}", value) if word is not None]
    for flag, value in combination.items():
        switches = {"True": [f"--{flag}"], "False": [f"--no_{flag}"]}
        words += switches.get(value) or [f"--{flag}", *([value] if flag in numbers else value.split() or [value])]
    try:
        settings = recipes.parse(words, PROGRAM)
        task = tasks.load(settings.task)
        if settings.training.average > 1:
            fault = f"--average {settings.training.average} is no flag of a sweep, which measures the last state"
            raise UserError(f"{fault}: drop it", USAGE)
        if (folder := task.init_from(settings)) is not None:
            fault = f"--init_from {folder} is no flag of a sweep, whose models all begin anew"
            raise UserError(f"{fault}: drop it", USAGE)
        if hasattr(task, "suites") and not any(word.startswith("--test_sequences") for word in words):
            settings = replace(settings, options=replace(settings.options, test_sequences=task.suites.SEQUENCES))
        settings, _ = task.load(settings)
    except UserError as error:
        raise UserError(f"{name(combination)}: {error}" if combination else str(error), error.exit_code) from None
    return replace(settings, training=replace(settings.training, run_dir=None))
