"""A task: the data of a model, its loss, and how it is judged.

A task is a module with the names of `Task` below: a folder `apformer/tasks/<name>/`, or the module that an installed
package brings by an entry point of the group `apformer.tasks`. A run stores the name of its task. The README says how
to bring a task of your own.
"""

import pkgutil
import shlex
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from apformer import plugins
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

# What else a task may have, by name; a command refuses runs of tasks without it:
#   certify(model, settings, work) -> result       enumerate every context; work: commands.certify.Work
#   contexts                                       the module that lists every context for apformer.proof
#   predict(model, settings, lines, name, terms) -> [(continuation, how many terms it has)]
#   neighbours(params, path, words, count) -> str  the words nearest to others, as a table
#   generate, translate                            for the commands of these names
#   suites                                         the module that measures a population, for a sweep
#   missed(settings, train_rows, records of missed.jsonl) -> train_rows, from which `sample` draws from then on
#   train_step(settings, loss_fn, step) -> step    another train step than `train.make_train_step` makes
#   adapters(settings) -> {rank, alpha, base}      of the low-rank adapters that were trained; None if none were
OPTIONAL = ("certify", "contexts", "predict", "neighbours", "generate", "translate", "suites", "missed", "train_step")
OPTIONAL += ("adapters",)

GROUP = "apformer.tasks"
OWN = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def names() -> tuple[str, ...]:
    """Return the names of all tasks: those of apformer, and those of installed packages."""
    return plugins.names(GROUP, OWN)


def load(name: str) -> ModuleType:
    """Import a task.

    Raises:
        UserError: Exit code USAGE, if there is no task of that name, or if it lacks names of the protocol.
    """
    task = plugins.load(GROUP, name, OWN, __name__)
    plugins.require(task, "task", name, NAMES)
    return task


def recipes() -> dict[str, str]:
    """Return the name of the task of each recipe.

    Raises:
        UserError: Exit code USAGE, if two tasks have a recipe of one name.
    """
    found: dict[str, str] = {}
    for task in names():
        for recipe in load(task).RECIPES:
            if recipe in found:
                fault = f"the tasks {found[recipe]} and {task} both have a recipe {recipe}"
                raise UserError(f"{fault}: uninstall the package that brings one of them", USAGE)
            found[recipe] = task
    return found


def ability(settings, name: str, run, command: str | None = None) -> Any:
    """Return what a task has under a name of OPTIONAL.

    Args:
        settings: Settings of a run.
        name: Name of the function or module.
        run: Directory of the run, for the message.
        command: Command that needs it, if it is not called by that name.

    Raises:
        UserError: Exit code USAGE, if the task lacks it. The sentence says what the run can do instead.
    """
    task = load(settings.task)
    if not hasattr(task, name):
        able = ", ".join(each for each in names() if hasattr(load(each), name))
        fault = f"{run} is a run of {settings.task}, and `apformer {command or name}` takes runs of {able}"
        raise UserError(f"{fault}: name one, or try `{task.example(settings, shlex.quote(str(run)))}`", USAGE)
    return getattr(task, name)
