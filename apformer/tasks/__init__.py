"""A task: the data of a model, its loss, and its evaluation.

A task is a module with the names of `Task` below: a folder `apformer/tasks/<name>/`, or the module that an installed
package brings by an entry point of the group `apformer.tasks`. A run stores the name of its task. docs/your-own.md says
how to bring a task.
"""

import pkgutil
import shlex
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import jax

from apformer import plugins
from apformer.decoding.bind import Model
from apformer.errors import UserError, tell
from apformer.settings import Settings

LossAndMetrics = tuple[jax.Array, dict[str, jax.Array]]
Loss = Callable[..., LossAndMetrics]  # (params, batch, key) -> (loss, metrics)
Progress = Callable[[int, int], Any]  # (done, total)

_tell_once = cache(tell)


class Evaluation(NamedTuple):
    """Result of a task's evaluation of a model.

    Attributes:
        result: Figures for evaluation.json.
        table: Table for a terminal.
        figures: {name: matplotlib Figure}.
        files: {name: text} for the run directory.
        doubt: Reason not to try a certificate, with RUN for the run directory; None if one is worth trying.
    """

    result: dict
    table: str
    figures: dict
    files: dict = {}
    doubt: str | None = None


class Feed(NamedTuple):
    """Rows that stay in files.

    Attributes:
        draw: Pure function of the key of a batch that chooses its rows: it returns arrays, the same on any device.
        read: Function of these arrays of several steps, in numpy. It returns the train_rows of these steps, with the
            same leading axes, and is called while earlier steps run.
        bytes: Size of the rows of a step.
    """

    draw: Callable
    read: Callable
    bytes: int


class Task(Protocol):
    """Names of a task's module. `rows` is what `load` returns; only the task looks inside it.

    Two modules define most of them ready-made. `tasks.defaults` is for tasks that draw fresh rows and train all
    parameters of a model; its `make_loss` is the next-token loss. `tasks.strings` is for fresh short strings: it lacks
    Config, RECIPES, ARCHITECTURES, VOCABULARY and `sample` alone.
    """

    @property  # which a module may have as a constant of a narrower type
    def Config(self) -> type:
        """Return the frozen dataclass of the data."""
        ...

    @property
    def Options(self) -> type:
        """Return the frozen dataclass of the options of sampling, training and evaluation."""
        ...

    @property
    def RECIPES(self) -> Mapping[str, Callable[..., Settings]]:
        """Return the recipes: {name: function that returns Settings}.

        A parameter of a function, with its type and default, is the flag of a field, and decides other defaults.
        """
        ...

    @property
    def ARCHITECTURES(self) -> tuple[str, ...]:
        """Return the names of the architectures that can learn the task, see `settings.load_architecture`."""
        ...

    @property
    def NOT_COMPILED(self) -> Mapping[str, tuple[str, ...]]:
        """Return {part of the settings: its fields on which no compiled program depends}."""
        ...

    @staticmethod
    def check(settings: Settings) -> int:
        """Return the longest row in tokens. Raises UserError for a flag that is out of range."""
        ...

    @staticmethod
    def load(settings: Settings) -> tuple[Settings, Any]:
        """Return the settings and the rows: a vocabulary may be fitted to the data."""
        ...

    @staticmethod
    def describe(settings: Settings, rows: Any) -> dict:
        """Return the description of the data in config.json, with a `source`; equal ones mean equal data."""
        ...

    @staticmethod
    def files(rows: Any) -> dict:
        """Return {name: text} of files for the run directory."""
        ...

    @staticmethod
    def train_rows(rows: Any) -> Any:
        """Return the arrays from which `sample` draws; None where it draws fresh rows."""
        ...

    @staticmethod
    def sample(key: jax.Array, settings: Settings, train_rows: Any) -> Any:
        """Return the batch of a step; pure. `settings` has the defaults of the recipe and of NOT_COMPILED."""
        ...

    @staticmethod
    def validation(settings: Settings, rows: Any) -> Any:
        """Return the batch by which the best checkpoint is chosen."""
        ...

    @staticmethod
    def make_loss(settings: Settings) -> Loss:
        """Return a function (params, batch, key) -> (loss, metrics).

        The metrics have "loss", and "exact" if outputs can be exactly right. Without a key nothing is random.
        """
        ...

    @staticmethod
    def floor(settings: Settings, rows: Any) -> float | None:
        """Return the least possible validation loss; None if it is unknown."""
        ...

    @staticmethod
    def evaluate(model: Model, settings: Settings, rows: Any, progress: Progress) -> Evaluation:
        """Evaluate a model, calling progress(done, total) on the way."""
        ...

    @staticmethod
    def page(settings: Settings, rows: Any, params: Any, evaluation: Any, path: Path) -> dict:
        """Return the content of the page, see `report.sections`; params and evaluation may be None."""
        ...

    @staticmethod
    def example(settings: Settings, run: str) -> str:
        """Return the command to try on a run."""
        ...

    @staticmethod
    def init_from(settings: Settings) -> str | None:
        """Return the folder of the model that training begins with; None for a new model."""
        ...

    @staticmethod
    def stored_settings(settings: Settings, path: Path) -> Settings:
        """Return the settings that load the rows of the run at `path` again, from the files that it stores."""
        ...

    @staticmethod
    def initial_params(key: jax.Array, settings: Settings, loaded: Any = None) -> Any:
        """Return the parameters to train, before the first step. loaded: those of the model at `init_from`."""
        ...

    @staticmethod
    def model_params(params: Any, settings: Settings) -> Any:
        """Return the parameters of the model, from those that are trained: adapters are merged."""
        ...

    @staticmethod
    def make_optimizer(settings: Settings) -> Any:
        """Return the optimizer of `initial_params`."""
        ...

    @staticmethod
    def feed(settings: Settings, rows: Any) -> Feed | None:
        """Return the Feed whose rows replace train_rows; None if all rows are in memory."""
        ...


NAMES = tuple(name for name in vars(Task) if not name.startswith("_"))

# What else a task may have, by name; a command refuses runs of tasks without it:
#   contexts                                       the module that lists every context for `apformer certify`, in numpy
#                                                  alone (see analysis/certificate.py), or a function of the settings
#                                                  that returns it
#   predict(model, settings, lines, name, terms) -> [(continuation, how many terms it has)]
#   neighbours(params, path, words, count) -> str  the words nearest to others, as a table
#   VOCABULARY                                     the characters of the tokens, for `tasks.strings`
#   generate, translate                            for the commands of these names
#   missed(settings, train_rows, records of missed.jsonl) -> train_rows, from which `sample` draws from then on
#   train_step(settings, loss_fn, step) -> step    another train step than `train.make_train_step` makes
#   adapters(settings) -> {rank, alpha, base}      of the low-rank adapters that were trained; None if none were

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
    module = plugins.load(GROUP, name, OWN, __name__, NAMES)
    made = module.RECIPES
    if not isinstance(made, Mapping) or not all(map(callable, made.values())):
        raise plugins.fault(GROUP, name, "whose RECIPES is no {recipe: function}")
    return module


def of(settings: Settings) -> ModuleType:
    """Return the task of a run's settings, see `load`."""
    return load(settings.task)


def _loadable() -> dict[str, ModuleType]:
    """Return {name: module} of the tasks that load, and report the others on standard error, once each."""
    modules = {}
    for name in names():
        try:
            modules[name] = load(name)
        except plugins.Fault as error:
            _tell_once(f"apformer: {error}")
    return modules


def recipes() -> dict[str, str]:
    """Return {recipe: name of its task}; of two recipes of one name the second is left out, and reported."""
    recipes: dict[str, str] = {}
    for task, module in sorted(_loadable().items(), key=lambda item: item[0] not in OWN):
        for recipe in module.RECIPES:
            if (first := recipes.setdefault(recipe, task)) != task:
                twice = f"whose recipe {recipe} is left out, since the task {first} has one of that name"
                _tell_once(f"apformer: {plugins.fault(GROUP, task, twice)}")
    return recipes


def ability(settings: Settings, name: str, run: str | Path, command: str | None = None) -> Any:
    """Return an optional function or module of a task, one of those listed above.

    Args:
        settings: Settings of a run.
        name: Name of the function or module.
        run: Directory of the run, for the message.
        command: Command that needs it, if it has another name.

    Raises:
        UserError: Exit code USAGE, if the task lacks it; suggests another command for the run.
    """
    task = load(settings.task)
    if not hasattr(task, name):
        others = ", ".join(other for other, module in _loadable().items() if hasattr(module, name))
        fault = f"{run} is a run of {settings.task}, and `apformer {command or name}` takes runs of {others}"
        raise UserError(f"{fault}: name one, or try `{task.example(settings, shlex.quote(str(run)))}`")
    return getattr(task, name)
