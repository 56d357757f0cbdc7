"""Turn the flags of `apformer train` into the settings of a run.

A recipe gives the defaults of all flags. It is a function of a task, whose arguments are the flags that decide other
defaults: `--digits` decides the window and the number of steps, `--context` the size of a table. They are read first.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from apformer import flags, plugins, tasks
from apformer.errors import UserError
from apformer.report import trackers
from apformer.runs import directory
from apformer.settings import Settings, Training, with_part
from apformer.tasks import settings_file, source_run

PARTS = ("training", "model", "data", "options", "optimizer")


def parse(args: list[str], program: str = "apformer train") -> Settings:
    """Return the settings of the flags.

    Args:
        args: Flags and their values.
        program: Command whose flags these are, for messages.

    Raises:
        UserError: Exit code USAGE; it names the flag and what fits.
    """
    start = _start(args, program)
    settings = _with_warmup(_read(start, args, program), args)
    init_from = tasks.of(settings).init_from
    folder = init_from(settings) and directory.named(init_from(settings))
    if folder != init_from(start):  # the recipe ignored it, and would train a new model
        fault = f"--init_from is not a flag of --recipe {start.training.recipe}"
        fitting = next(recipe for recipe, _, _ in _variants(start.task) if "init_from" in _arguments(recipe))
        raise UserError(f"{fault}: give --recipe {fitting}, or drop the flag")
    settings_file.check(settings)
    trackers.require(settings.training.log_to)
    if folder is not None:
        _require_same_model(settings.model, start.model, folder)
        settings = with_part(settings, "options", init_from=folder)
    return settings


def _require_same_model(cfg: Any, source_cfg: Any, folder: str) -> None:
    """Raise UserError (exit USAGE) for a flag that differs from the model in a folder; dropout may differ."""
    names = [name for name in vars(cfg) if name not in ("dropout", "attention_dropout", "position_options")]
    source_run.require_same(cfg, source_cfg, names, folder)
    if "position_options" in vars(cfg):  # of one class, since --position is the same
        options = cfg.position_options
        source_run.require_same(options, source_cfg.position_options, vars(options), folder)


def _start(args: list[str], program: str) -> Settings:
    """Return the settings that the recipe gives, before the other flags."""
    recipes = tasks.recipes()
    name = flags.cut(args, "recipe", f"one of {', '.join(recipes)}")[1] or Training.recipe
    if name not in recipes:
        raise UserError(
            f"--recipe {name} is none of {', '.join(recipes)}: give one of these, or install or repair its package"
        )
    arguments = [(p.name, p.annotation, p.default) for p in _arguments(name).values()]
    values = vars(flags.first(dataclasses.make_dataclass("Arguments", arguments), args, program))
    if values.get("init_from"):
        values["init_from"] = directory.named(values["init_from"])  # runs/latest will lead to the run that begins
    try:
        settings = tasks.load(recipes[name]).RECIPES[name](**values)
    except ValueError as error:
        raise UserError(f"--{error}") from None
    if getattr(settings, "task", None) != recipes[name]:
        raise plugins.fault(tasks.GROUP, recipes[name], f"whose recipe {name} makes no settings of that task")
    return with_part(settings, "training", recipe=name)


def _arguments(recipe: str) -> Mapping[str, inspect.Parameter]:
    """Return {name: Parameter} of the arguments of a recipe, which are flags."""
    return inspect.signature(tasks.load(tasks.recipes()[recipe]).RECIPES[recipe], eval_str=True).parameters


def _read(start: Settings, args: list[str], program: str) -> Settings:
    """Return the settings with every other flag. A position scheme brings flags of its own, so it is read first."""
    parts = {name: getattr(start, name) for name in PARTS}
    if "position_options" in vars(start.model):
        parts["model"] = _with_position(start.model, args)
    classes = [*parts.values(), *filter(None, [vars(parts["model"]).get("position_options")])]
    names = [field.name for part in classes for field in dataclasses.fields(part)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise plugins.Fault(f"--{min(twice)} is a field of two parts of the settings: rename that of your package")
    fields: list[tuple[str, Any, Any]] = [(name, type(part), part) for name, part in parts.items()]
    architectures = tasks.load(start.task).ARCHITECTURES
    if len(architectures) > 1:
        from tyro.conf import arg

        explained = arg(help="Kind of model: model, the decoder-only transformer, or recurrent. The recipe decides it.")
        fields.append(("architecture", Annotated[Literal[(*architectures,)], explained], start.architecture))
    recipe = start.training.recipe
    program += f" --recipe {recipe}" * (recipe != Training.recipe)
    try:
        kind = dataclasses.make_dataclass("Settings", fields, frozen=True)
        parsed = flags.parse(kind, args, program, _description(recipe))
    except UserError as error:
        raise UserError(_what_fits(str(error), start)) from None
    if len(architectures) > 1 and parsed.architecture != start.architecture:
        wrong = f"--architecture {parsed.architecture} does not fit --recipe {recipe}"
        fitting = [
            name
            for name, _, other in _variants(start.task)
            if name != recipe and (other.task, other.architecture) == (start.task, parsed.architecture)
        ]
        remedy = f"give --recipe {fitting[0]}" if fitting else "drop the flag"
        raise UserError(f"{wrong}, which trains a {start.architecture}: {remedy}")
    return Settings(start.task, start.architecture, **{name: getattr(parsed, name) for name in PARTS})


def _description(chosen: str) -> str:
    """Return the first lines of `apformer train --help`: the recipes there are."""
    lines = [f"Train a model. These are the flags of --recipe {chosen}; the recipes are:", ""]
    recipes = tasks.recipes()
    for recipe in sorted(recipes, key=lambda recipe: recipes[recipe] != recipes[Training.recipe]):
        says = inspect.getdoc(tasks.load(recipes[recipe]).RECIPES[recipe]) or ""  # under `python -OO` there is none
        lines.append(f"  {recipe:14}{says.partition(chr(10))[0]}".rstrip())
    return "\n".join(lines)


def _with_position(cfg: Any, args: list[str]) -> Any:
    """Return the model's Config with the position scheme that the flags name."""
    _, chosen = flags.cut(args, "position", "a position scheme")
    if chosen not in (None, cfg.position):
        with suppress(ValueError):  # an unknown scheme is refused later, with all other flags
            return dataclasses.replace(cfg, position=chosen, position_options=None)
    return cfg


def _with_warmup(settings: Settings, args: list[str]) -> Settings:
    """Return the settings with a shorter warm-up if the run ends before its recipe's, and no flag sets it."""
    steps, rule = settings.training.steps, settings.optimizer
    if rule.warmup_steps < steps or flags.cut(args, "warmup_steps", "a number")[1] is not None:
        return settings
    return with_part(settings, "optimizer", warmup_steps=max(steps, 0) // 10)


def _variants(task: str) -> Iterator[tuple[str, str, Settings]]:
    """Yield (recipe, other flags, its settings): recipes of the task first, the default recipe first among equals."""
    items = tasks.recipes().items()
    for recipe, owner in sorted(items, key=lambda item: (item[1] != task, item[0] != Training.recipe)):
        module = tasks.load(owner)
        make, variants = module.RECIPES[recipe], [("", {})]
        if "architecture" in _arguments(recipe):
            variants += [(f" --architecture {name}", {"architecture": name}) for name in module.ARCHITECTURES]
        with suppress(Exception):  # a faulty recipe of a package; naming it gives its error
            yield from [(recipe, words, make(**arguments)) for words, arguments in variants]


def _what_fits(sentence: str, settings: Settings) -> str:
    """Return the sentence about a wrong flag in terms of recipes: which recipe has an unknown flag."""
    unknown = re.match(r"unrecognized options: --([\w-]+)", sentence)
    if unknown:
        name = unknown[1].replace("-", "_")
        for recipe, words, other in _variants(settings.task):
            given = f"{recipe}{words}" == settings.training.recipe  # such as text, of which another architecture has it
            if not given and any(name in vars(getattr(other, part)) for part in PARTS):
                return f"--{name} is a flag of --recipe {recipe}{words}: give that recipe, or drop the flag"
    names = "|".join(vars(settings.model) | vars(vars(settings.model).get("position_options", settings.model)))
    return re.sub(
        rf"^error parsing (?:model|(?:model\.)?position_options): ((?:{names})\b)?",
        lambda match: f"--{match[1]}" if match[1] else "",
        sentence,
    )
