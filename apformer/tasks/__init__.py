"""A task: the data of a model, its loss, and how it is judged.

A task is a module with the names of `Task` below: a folder `apformer/tasks/<name>/`, or the module that an installed
package brings by an entry point of the group `apformer.tasks`. A run stores the name of its task. docs/your-own.md says
how to bring a task.
"""

import pkgutil
import shlex
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
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
        doubt: Why no certificate is worth trying, where RUN stands for the run directory; None if one is.
    """

    result: dict
    table: str
    figures: dict
    files: dict = {}
    doubt: str | None = None


class Feed(NamedTuple):
    """Rows that do not fit into memory: `draw` chooses those of a step, and `read` fetches them while others train."""

    draw: Callable  # key of a batch -> arrays; pure, and the same on any device
    read: Callable  # these arrays of several steps, as numpy -> what `sample` is handed, with the same leading axes
    bytes: int  # that `read` returns for a step


class Task(Protocol):
    """The names of a task's module. `rows` is what `load` returns, and nothing else looks inside it.

    Two modules have ready ones: `tasks.defaults` those of rows that are drawn afresh, of training all parameters of a
    model, and a `make_loss` of the next token; `tasks.strings` all but Config, RECIPES, ARCHITECTURES and `sample` for
    short strings that are drawn afresh.
    """

    @property  # which a module may have as a constant of a narrower type
    def Config(self) -> type:
        """Frozen dataclass: the data."""
        ...

    @property
    def Options(self) -> type:
        """Frozen dataclass: how the data are sampled, and a model judged."""
        ...

    @property
    def RECIPES(self) -> Mapping[str, Callable[..., Settings]]:
        """Return {name: function of the flags that decide all others -> Settings}."""
        ...

    @property
    def ARCHITECTURES(self) -> tuple[str, ...]:
        """Architectures that can learn it, see `settings.load_architecture`."""
        ...

    @property
    def NOT_COMPILED(self) -> Mapping[str, tuple[str, ...]]:
        """{part of the settings: fields} that no compiled program depends on."""
        ...

    @property
    def EVALUATION(self) -> AbstractSet[str]:
        """Keys of evaluation.json that `page` reads."""
        ...

    @staticmethod
    def check(settings: Settings) -> int:
        """Return the longest row in tokens. Raises UserError that names the flag and what fits."""
        ...

    @staticmethod
    def load(settings: Settings) -> tuple[Settings, Any]:
        """Return the settings and the rows: a vocabulary may be fitted to the data."""
        ...

    @staticmethod
    def describe(settings: Settings, rows: Any) -> dict:
        """Return what config.json says of the data, with a `source`; equal means the same data."""
        ...

    @staticmethod
    def files(rows: Any) -> dict:
        """Return {name: text} that the run directory keeps."""
        ...

    @staticmethod
    def train_rows(rows: Any) -> Any:
        """Return arrays that `sample` is handed; None where rows are drawn afresh."""
        ...

    @staticmethod
    def sample(key: jax.Array, settings: Settings, train_rows: Any) -> Any:
        """Return the batch of a step; pure."""
        ...

    @staticmethod
    def validation(settings: Settings, rows: Any) -> Any:
        """Return the batch by which the best checkpoint is chosen."""
        ...

    @staticmethod
    def make_loss(settings: Settings) -> Loss:
        """Return (params, batch, key) -> (loss, metrics): {"loss"}, and "exact" if outputs are right or wrong.

        Without a key nothing is random.
        """
        ...

    @staticmethod
    def floor(settings: Settings, rows: Any) -> float | None:
        """Return the least validation loss there can be, where it is known."""
        ...

    @staticmethod
    def evaluate(model: Model, settings: Settings, rows: Any, progress: Progress) -> Evaluation:
        """Measure a model. progress(done, total) is told how far it is."""
        ...

    @staticmethod
    def page(settings: Settings, rows: Any, params: Any, evaluation: Any, path: Path) -> dict:
        """Return what the page shows, see `report.sections`; params and evaluation may be None."""
        ...

    @staticmethod
    def example(settings: Settings, run: str) -> str:
        """Return the command to try on a run."""
        ...

    @staticmethod
    def init_from(settings: Settings) -> str | None:
        """Return the folder of a model that training begins with."""
        ...

    @staticmethod
    def kept(settings: Settings, path: Path) -> Settings:
        """Return the settings by which the rows of a run are read again."""
        ...

    @staticmethod
    def initial_params(key: jax.Array, settings: Settings, given: Any = None) -> Any:
        """Return the parameters that are trained, before the first step."""
        ...

    @staticmethod
    def whole(params: Any, settings: Settings) -> Any:
        """Return the parameters of the model, from what is trained."""
        ...

    @staticmethod
    def make_optimizer(settings: Settings) -> Any:
        """Return the optimizer of `initial_params`."""
        ...

    @staticmethod
    def feed(settings: Settings, rows: Any) -> Feed | None:
        """Return what reads rows step by step; what is read replaces train_rows."""
        ...


NAMES = tuple(name for name in vars(Task) if not name.startswith("_"))

# What else a task may have, by name; a command refuses runs of tasks without it:
#   contexts                                       the module that lists every context for `apformer certify`, in numpy
#                                                  alone, or a function of the settings that returns it
#   predict(model, settings, lines, name, terms) -> [(continuation, how many terms it has)]
#   neighbours(params, path, words, count) -> str  the words nearest to others, as a table
#   VOCABULARY                                     the characters of the tokens, for `tasks.strings`
#   generate, translate                            for the commands of these names
#   missed(settings, train_rows, records of missed.jsonl) -> train_rows, from which `sample` draws from then on
#   train_step(settings, loss_fn, step) -> step    another train step than `train.make_train_step` makes
#   adapters(settings) -> {rank, alpha, base}      of the low-rank adapters that were trained; None if none were
OPTIONAL = ("contexts", "predict", "neighbours", "generate", "translate", "missed", "train_step", "adapters")

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
    return plugins.load(GROUP, name, OWN, __name__, NAMES)


def _sound() -> dict[str, ModuleType]:
    """Return all tasks but those of packages at fault, each of which is said once on standard error."""
    found = {}
    for name in names():
        try:
            found[name] = load(name)
        except plugins.Fault as error:
            _tell_once(f"apformer: {error}")
    return found


def recipes() -> dict[str, str]:
    """Return the name of the task of each recipe.

    Raises:
        UserError: Exit code USAGE, if two tasks have a recipe of one name.
    """
    found: dict[str, str] = {}
    for task, module in _sound().items():
        for recipe in module.RECIPES:
            if recipe in found:
                fault = f"the tasks {found[recipe]} and {task} both have a recipe {recipe}"
                raise UserError(f"{fault}: uninstall the package that brings one of them")
            found[recipe] = task
    return found


def ability(settings: Settings, name: str, run: str | Path, command: str | None = None) -> Any:
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
        able = ", ".join(each for each, module in _sound().items() if hasattr(module, name))
        fault = f"{run} is a run of {settings.task}, and `apformer {command or name}` takes runs of {able}"
        raise UserError(f"{fault}: name one, or try `{task.example(settings, shlex.quote(str(run)))}`")
    return getattr(task, name)
