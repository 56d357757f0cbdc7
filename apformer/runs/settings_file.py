"""Settings as nested dicts, as `config.json` holds them, and back."""

import dataclasses
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from apformer.errors import CHECKPOINT, UserError
from apformer.layers import position
from apformer.model import Config as Model
from apformer.optimizer import Config as Optimizer
from apformer.recurrent import Config as Recurrent
from apformer.runs import limits
from apformer.seq2seq import Config as Seq2seq
from apformer.settings import Options, Settings, Teaching, TextOptions, Training
from apformer.tasks.digits import generator as wide
from apformer.tasks.progressions import generator
from apformer.tasks.text import corpus as text
from apformer.tasks.translation import corpus


def to_dict(settings):
    """Settings as nested dicts."""
    return dataclasses.asdict(settings)


def from_dict(config, source):
    """Settings from `config.json`. Raises UserError (exit CHECKPOINT) that names the file and the part at fault."""
    try:
        data, architecture, drawing = config["data"], config["model"], config["drawing"]
        kinds = {"order": wide.Config, "text": text.Config, "byte_pairs": corpus.Config}
        models = {"cell": Recurrent, "n_encoder_layers": Seq2seq}
        options = {"beams": Teaching, "lora_rank": TextOptions}
        settings = Settings(
            training=_typed(Training, config["training"]),
            model=_typed(_kind(architecture, models, Model), _with_options(architecture)),
            data=_typed(_kind(data, kinds, generator.Config), data),
            optimizer=_typed(Optimizer, config["optimizer"]),
            drawing=_typed(_kind(drawing, options, Options), drawing),
        )
        limits.check(settings)
    except (KeyError, TypeError, ValueError, UserError) as error:
        sentence = f"{source} is damaged or of another version of apformer ({error}): restore it, or train anew"
        raise UserError(sentence, CHECKPOINT) from None
    return settings


def _kind(values, kinds, usual):
    """The dataclass that one of its fields gives away."""
    return next((kind for name, kind in kinds.items() if name in values), usual)


def _with_options(values):
    """The values of a model, its position options as the Scheme that the name of the position says."""
    if values.get("position_options") is None:
        return values
    return values | {"position_options": _typed(position.load(values["position"]), values["position_options"])}


def _typed(kind, values):
    """The dataclass of values from JSON, if every one is of the type that its field names; ValueError if not."""
    part = kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
    for field in dataclasses.fields(part):
        if not _fits(getattr(part, field.name), field.type):
            raise ValueError(f"{field.name} is {getattr(part, field.name)!r}")
    return part


def _fits(value, kind):
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is Literal:
        return value in parts
    if origin is UnionType:
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    return isinstance(value, float | int if kind is float else kind)
