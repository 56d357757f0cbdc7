"""What is learned, and how it is judged: a task is a folder.

A task is a package `apformer/tasks/<name>/` with the names of `Task` below. There is no base class and no list of
tasks: a run stores the name of its task, and the package is imported by that name. `apformer/README.md` says how to add
one.
"""

import importlib
import pkgutil
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from apformer.errors import USAGE, UserError


class Evaluation(NamedTuple):
    """What a model is worth."""

    result: dict  # for evaluation.json
    table: str  # for a terminal
    figures: dict  # {name: matplotlib Figure}
    files: dict = {}  # {name: text} for the run directory
    doubt: str | None = None  # why no certificate is worth trying


class Feed(NamedTuple):
    """Rows that do not fit into memory: `draw` chooses those of a step, and `read` fetches them while others train."""

    draw: Callable  # key of a batch -> arrays; pure, and the same on any device
    read: Callable  # these arrays of several steps, as numpy -> what `sample` is handed, with the same leading axes
    bytes: int  # that `read` returns for a step


class Task(Protocol):
    """The names of a task's package. `rows` is what `load` returns, and nothing else looks inside it.

    A task that trains all parameters of its model, on rows in memory, takes the last six names from `tasks.plain`.
    """

    Config: type  # frozen dataclass: the data
    Options: type  # frozen dataclass: how it is sampled and judged
    RECIPES: dict[str, Callable]  # {name: function of the flags that decide all others -> Settings}
    ARCHITECTURES: tuple[str, ...]  # modules of apformer that can learn it
    NOT_COMPILED: dict[str, tuple]  # {part of the settings: fields} that no compiled program depends on
    EVALUATION: set[str]  # keys of evaluation.json that `page` reads
    ABILITIES: dict[str, Callable]  # {command: function}: what else can be asked of its models, see below

    def check(settings) -> int: ...  # the longest row, in tokens; UserError names the flag and what fits
    def load(settings) -> tuple[Any, Any]: ...  # (settings, rows): a vocabulary may be fitted to the data
    def describe(settings, rows) -> dict: ...  # equal means the same data
    def files(rows) -> dict[str, str]: ...  # {name: text} that the run directory keeps
    def train_rows(rows) -> Any: ...  # arrays that `sample` is handed; None where rows are drawn afresh
    def sample(key, settings, train_rows) -> Any: ...  # the batch of a step; pure
    def validation(settings, rows) -> Any: ...  # the batch by which the best checkpoint is chosen
    def make_loss(settings) -> Callable: ...  # (params, batch, key) -> (loss, metrics); without a key nothing is random
    def floor(settings, rows) -> float | None: ...  # the least validation loss there can be, where it is known
    def evaluate(
        model, settings, rows, progress
    ) -> Evaluation: ...  # model: decoding.bind.Model; progress(done, total)
    def page(settings, rows, params, evaluation, path) -> dict: ...  # what the page shows, see report.sections
    def example(settings, run) -> str: ...  # the command to try

    def init_from(settings) -> str | None: ...  # the folder of a model that training begins with
    def kept(settings, path) -> Any: ...  # the settings by which the rows of a run are read again
    def initial_params(key, settings, given=None) -> Any: ...  # what is trained
    def whole(params, settings) -> Any: ...  # the parameters of the model, from what is trained
    def make_optimizer(settings) -> Any: ...
    def feed(settings, rows) -> Feed | None: ...  # where rows are read step by step; what is read replaces train_rows


NAMES = (*Task.__annotations__, *(name for name in vars(Task) if not name.startswith("_")))

# The functions of ABILITIES, by command:
#   certify(model, settings, work) -> result       enumerate every context; work: commands.certify.Work
#   predict(model, settings, lines, name, terms) -> [(continuation, how many terms it has)]
#   neighbours(params, path, words, count) -> str  the words nearest to others, as a table
#   generate, translate                            marks what these commands can use
#   sweep                                          the module that measures a population (sweep.sweep)
#   train --until certified(settings, train_rows, records of missed.jsonl) -> what `sample` is handed from then on
#   train --newton_steps(settings) -> nats_fn of gauss_newton.make_train_step
#   train --newton_batches 0(settings) -> what such a step sees instead of batches: every training row there is
#   export --to lora(settings) -> {rank, alpha, base}  of the low-rank adapters that were trained; None if none were
#   certify --check, export --to proof             the module that lists every context for apformer.proof


def names():
    """The tasks there are: the folders of this one."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def load(name) -> Task:
    """The package of a task. Raises UserError (exit USAGE) that lists the known ones, or the names that one lacks."""
    if name not in names():
        raise UserError(f"there is no task {name}: it is none of {', '.join(names())}", USAGE)
    task = importlib.import_module(f"{__name__}.{name}")
    missing = [name for name in NAMES if not hasattr(task, name)]
    if missing:
        lacking = f"the package of the task {name} lacks {', '.join(missing)}"
        raise UserError(f"{lacking}: import or define them there, see apformer/tasks/__init__.py", USAGE)
    return task


def recipes():
    """{name: name of the task}: the recipes of all tasks."""
    return {recipe: task for task in names() for recipe in load(task).RECIPES}


def ability(settings, command, run):
    """The function of a task for a command. Raises UserError (exit USAGE) that says what the run can do instead."""
    task = load(settings.task)
    if command not in task.ABILITIES:
        able = ", ".join(name for name in names() if command in load(name).ABILITIES)
        fault = f"{run} is a run of {settings.task}, and `apformer {command}` takes runs of {able}"
        raise UserError(f"{fault}: name one, or try `{task.example(settings, shlex.quote(str(run)))}`", USAGE)
    return task.ABILITIES[command]
