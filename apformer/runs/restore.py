"""A trained run, read back from its directory: settings, rows, and the parameters of its best checkpoint."""

from functools import partial

import jax
import numpy as np

from apformer import files
from apformer.errors import CHECKPOINT, DATA, USAGE, UserError
from apformer.runs import checkpoint, settings_file
from apformer.runs.fit import initial_state
from apformer.runs.metrics import read_metrics
from apformer.runs.selection import score, validation
from apformer.tasks import choose


def load_settings(path):
    """The settings of a run. Raises UserError (exit CHECKPOINT) if its config.json is damaged."""
    return settings_file.from_dict(_config(path).get("flags"), path / "config.json")


def load_rows(path):
    """The rows of a run. Raises UserError (exit DATA) if the dataset is not the one it was trained on."""
    settings = load_settings(path)
    task = choose.module(settings.data)
    rows = task.read_rows(settings)
    found = task.describe_rows(settings, rows)
    if found != _config(path).get("data"):
        raise UserError(f"{found['source']} has changed since {path} was trained on it: restore it", DATA)
    return rows


def _config(path):
    config = files.read_json(path / "config.json")
    if not isinstance(config, dict):
        raise UserError(f"{path / 'config.json'} holds no settings: restore the file, or train anew", CHECKPOINT)
    return config


def load_params(path, settings, member=None, step=None):
    """(params of one model, step, member) from a saved step of a run; if not given the best, or else the newest.

    A translator that is taught to be the average of checkpoints is the mean of its newest ones.
    """
    several = getattr(settings.drawing, "average", 1)
    if step is not None or several == 1:
        return _load_params(path, settings, member, step)
    steps = checkpoint.steps(path / "checkpoints")[-several:]
    found = [_load_params(path, settings, member, step) for step in steps or [None]]
    mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *(params for params, _, _ in found))
    return mean, *found[-1][1:]


def _load_params(path, settings, member, step):
    members = settings.training.members
    if member is not None and not 0 <= member < members:
        raise UserError(f"--member {member} is out of range: {path} has members 0 to {members - 1}", USAGE)
    abstract = jax.eval_shape(partial(initial_state, settings))
    folder = path / "checkpoints"
    step, state = checkpoint.load(folder, abstract, checkpoint.best(folder) if step is None else step)
    if members == 1:
        return state.params, step, 0
    if member is None:
        member = _best_member(path, step, members)
    return jax.tree.map(lambda leaf: leaf[member], state.params), step, member


def _best_member(path, step, members):
    """The member of the lowest score at a step, by metrics.jsonl."""
    try:
        (record,) = (record for record in read_metrics(path) if record["step"] == step)
    except (UserError, ValueError):
        unknown = f"{path / 'metrics.jsonl'} does not say which member is the best at step {step:,}"
        raise UserError(f"{unknown}: choose one with --member 0 to {members - 1}", CHECKPOINT) from None
    scores = validation(record)
    return int(np.argmin(score(scores) if scores else record["loss"]))
