"""Training that begins with the model of another run: what that run says, and what must not contradict it."""

from pathlib import Path

from apformer import files
from apformer.errors import CHECKPOINT, USAGE, UserError
from apformer.settings import model_from


def read(folder, task, instead):
    """(architecture, Config of the model, flags of the data) of a run of a task.

    instead: what to do with a run of another task, a part of a sentence. Raises UserError: CHECKPOINT if config.json is
    missing or damaged, USAGE for a run of another task.
    """
    file = Path(folder) / "config.json"
    config = files.read_json(file)
    try:
        name, data = config["architecture"], dict(config["flags"]["data"])
        cfg, theirs = model_from(name, config["flags"]["model"]), config["task"]
    except (KeyError, TypeError, ValueError, AttributeError, ImportError, UserError) as error:
        fault = f"{file} is damaged or of another version of apformer ({error})"
        raise UserError(f"{fault}: restore it, or train anew", CHECKPOINT) from None
    if theirs != task:
        raise UserError(f"{folder} was not trained {instead}", USAGE)
    return name, cfg, data


def require_same(model, theirs, folder):
    """Raises UserError (exit USAGE) that names the first flag which contradicts `theirs`, the model in a folder.

    Dropout is no part of a model's parameters, and may be another.
    """
    theirs = vars(theirs)
    for name, value in vars(model).items():
        if name not in theirs:
            raise UserError(f"--{name} is no part of the model in --init_from {folder}: drop it", USAGE)
        if name not in ("dropout", "attention_dropout") and value != theirs[name]:
            fault = f"--{name} {value} contradicts --init_from {folder}, whose {name} is {theirs[name]}"
            raise UserError(f"{fault}: drop the flag", USAGE)
