"""The settings of a run, part by part: all flags of `apformer train`, and the content of config.json."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, get_args

import typeguard

from apformer import optimizer, plugins
from apformer.files import FilePath
from apformer.layers import config, recompute
from apformer.optimizer import Config as Optimizer

ARCHITECTURES = ("model", "recurrent", "seq2seq", "word2vec")  # modules of apformer; packages may bring others
NAMED: dict[Any, str] = {  # {type of a field: the group of plugins that it names}
    config.Position: "apformer.position",
    config.Similarity: "apformer.similarity",
    optimizer.Rule: optimizer.GROUP,
}


@dataclass(frozen=True)
class Training:
    """Length of training, and the directory of the run.

    Attributes:
        recipe: Preset of all other flags: task, model and training. Every flag overrides it.
        steps: Number of optimizer steps.
        until: End of training. steps: the last step. certified: the first checkpoint that is certified, or the last
            step. A population, and a run with --average above 1, are trained to the last step.
        batch_size: Number of rows in a batch.
        accumulate: Number of batches in a step, one after the other. Their gradients are averaged.
        remat: Rematerialisation (gradient checkpointing): the backward pass computes each block again. Needs less
            memory and more time. For transformers only.
        seed: Random seed of the weights, the batches and dropout.
        members: Number of models trained in one run, with the seeds seed, seed + 1, ...
        member_mode: Order of members. map: one after the other, with the bits of single runs. vmap: at once. auto: map
            on a CPU.
        compute_dtype: Number format of the forward and backward pass. Parameters stay float32.
        log_every: Number of steps between lines of metrics.jsonl. They run in one compiled loop.
        save_every: Number of steps between checkpoints, rounded up to a multiple of log_every.
        keep: Number of newest checkpoints to keep, besides the best.
        ema: Decay of the exponential moving average (EMA) of the parameters, which is then the model: 0.999 averages
            about the last 1,000 steps. With 0, the model is the parameters themselves.
        average: Number of newest checkpoints whose mean is the model. With 1, the model is the best checkpoint.
        patience: Number of checkpoints without a new best one after which training stops. With 0, it never stops early.
        log_to: Library that gets each line of metrics.jsonl too. Its log lies in the run directory, and `resume` goes
            on with it; with WANDB_MODE=offline, wandb needs no network. To install both: pip install
            "apformer[tensorboard,wandb]".
        run_dir: New directory for the run. The default is runs/<UTC time>-<recipe>, which runs/latest then leads to:
            other commands take that run if none is named.
    """

    recipe: str = "exact"
    steps: int = 2000
    until: Literal["steps", "certified"] = "steps"
    batch_size: int = 128
    accumulate: int = 1
    remat: bool = False
    seed: int = 0
    members: int = 1
    member_mode: Literal["auto", "map", "vmap"] = "auto"
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    log_every: int = 50
    save_every: int = 500
    keep: int = 3
    ema: float = 0.0
    average: int = 1
    patience: int = 0
    log_to: Literal["none", "tensorboard", "wandb"] = "none"
    run_dir: FilePath | None = None


@dataclass(frozen=True)
class Settings:
    """A whole run: the names of its task and architecture, and the settings of each part.

    task: a name that `tasks.load` knows. architecture: a name that `load_architecture` knows.
    """

    task: str
    architecture: str
    training: Training
    model: Any
    data: Any
    options: Any
    optimizer: Optimizer = Optimizer()


def with_part(settings: Settings, part: str, **values: Any) -> Settings:
    """Return the settings with other values in one part."""
    return replace(settings, **{part: replace(getattr(settings, part), **values)})


def load_architecture(name: str) -> ModuleType:
    """Return the module of an architecture: a module of apformer, or one that an installed package brings.

    It has `Config`, `init` and `apply` as `apformer.model` has. Other functions that it lacks are added: `init_cache`
    and `extend` (all tokens computed again), `max_tokens` (no bound), `unstack` (no change).

    Raises:
        UserError: Exit code USAGE, if there is no such module, or if it lacks `Config`, `init` or `apply`.
    """
    module = plugins.load("apformer.architectures", name, ARCHITECTURES, "apformer", ("Config", "init", "apply"))
    if not {"init_cache", "extend"} <= vars(module).keys():  # one of its own would not fit the other
        vars(module).update(recompute.functions(module))
    vars(module).setdefault("unstack", lambda params: params)
    vars(module).setdefault("max_tokens", lambda cfg: None)
    return module


def architecture_of(settings: Settings) -> ModuleType:
    """Return the module of a run's model, see `load_architecture`."""
    return load_architecture(settings.architecture)


def proof_config(settings: Settings) -> dict[str, Any]:
    """Return the Config as apformer.proof reads it: a dict, with the name of the architecture.

    A Config whose network another architecture computes as well names that one as its attribute `same_as`.
    """
    same_as = getattr(settings.model, "same_as", settings.architecture)
    return dataclasses.asdict(settings.model) | {"architecture": same_as}


def training_apply(settings: Settings) -> Callable[..., Any]:
    """Return the model's `apply` for training, with rematerialisation if training.remat is set."""
    apply = architecture_of(settings).apply
    return partial(apply, remat=True) if settings.training.remat else apply


def model_from(architecture: str, values: dict[str, Any]) -> Any:
    """Return the Config of a model from values of JSON.

    Raises:
        ValueError, TypeError: For a wrong field, which it names.
    """
    if values.get("position_options") is not None:
        scheme = config.load("position", values["position"]).Scheme
        values = values | {"position_options": part_from(scheme, values["position_options"])}
    return part_from(load_architecture(architecture).Config, values)


def part_from(kind: type, values: dict[str, Any]) -> Any:
    """Return a dataclass from values of JSON. Raises ValueError if one is not of the type of its field."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    for field in dataclasses.fields(kind):
        if field.name in values and not _fits(value := values[field.name], field.type):
            if field.type in NAMED:
                raise plugins.absent(NAMED[field.type], value, get_args(field.type))
            raise ValueError(f"{field.name} is {value!r}")
    return kind(**values)


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(value, bool) and kind in (int, float, int | None, float | None):
        return False  # a bool is an int to Python
    try:
        typeguard.check_type(value, kind, collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS)
    except typeguard.TypeCheckError:
        return False
    return True
