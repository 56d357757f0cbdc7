"""Settings as nested dicts, as `config.json` holds them, and back."""

import dataclasses
from typing import Literal, get_args, get_origin

from apformer import limits
from apformer.data import progressions, text, wide
from apformer.errors import CHECKPOINT, UserError
from apformer.model import Config as Model
from apformer.optimizer import Config as Optimizer
from apformer.recipes import Drawing, Settings, Training
from apformer.recurrent import Config as Recurrent


def to_dict(settings):
    """Settings as nested dicts."""
    return dataclasses.asdict(settings)


def from_dict(config, source):
    """Settings from `config.json`. Raises UserError (exit CHECKPOINT) that names the file and the part at fault."""
    try:
        data, drawing = config["data"], config["drawing"]
        generator = wide if "order" in data else text if "text" in data else progressions
        settings = Settings(
            training=_typed(Training(**config["training"])),
            model=_typed((Recurrent if "cell" in config["model"] else Model)(**config["model"])),
            data=_typed(generator.Config(**data)),
            optimizer=_typed(Optimizer(**config["optimizer"])),
            drawing=None if drawing is None else _typed(Drawing(**drawing)),
        )
        limits.check(settings)
    except (KeyError, TypeError, ValueError, UserError) as error:
        sentence = f"{source} is damaged or of another version of apformer ({error}): restore it, or train anew"
        raise UserError(sentence, CHECKPOINT) from None
    return settings


def _typed(part):
    """The dataclass, if every value is of the type that its field names; ValueError if not."""
    for field in dataclasses.fields(part):
        value, kind = getattr(part, field.name), float | int if field.type is float else field.type
        if not (value in get_args(kind) if get_origin(kind) is Literal else isinstance(value, kind)):
            raise ValueError(f"{field.name} is {value!r}")
    return part
