"""A trained run, read back from its directory: settings, rows, and the parameters of its best checkpoint."""

from functools import partial

import jax
import numpy as np

from apformer import files
from apformer.errors import CHECKPOINT, DATA, NON_FINITE, USAGE, UserError
from apformer.runs import checkpoint, selection, settings_file
from apformer.runs.fit import initial_state
from apformer.tasks import choose


def load_settings(path):
    """The settings of a run. Raises UserError (exit CHECKPOINT) if its config.json is damaged."""
    return settings_file.from_dict(_config(path).get("flags"), path / "config.json")


def load_rows(path):
    """The rows of a run. Raises UserError (exit DATA) if the dataset is not the one it was trained on."""
    settings = load_settings(path)
    task = choose.module(settings.data)
    rows = task.read_rows(task.kept(settings, path))
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

    A translator that is taught to be the average of checkpoints is the mean of its newest ones, all of one member.
    Raises UserError: USAGE for a member that the run does not have, NON_FINITE for one that training has spoilt.
    """
    members, folder = settings.training.members, path / "checkpoints"
    if member is not None and not 0 <= member < members:
        raise UserError(f"--member {member} is out of range: {path} has members 0 to {members - 1}", USAGE)
    steps = [step] if step is not None else _steps_to_use(folder, getattr(settings.drawing, "average", 1))
    abstract = jax.eval_shape(partial(initial_state, settings))

    def params_of(state):
        params = state.params if members == 1 else jax.tree.map(lambda leaf: leaf[member], state.params)
        return choose.module(settings.data).whole(params, settings)

    newest, state = checkpoint.load(folder, abstract, steps[-1])
    member = _choose(path, newest, members, member)
    last = params_of(state)
    if len(steps) == 1:
        return last, newest, member
    params = [params_of(checkpoint.load(folder, abstract, step)[1]) for step in steps[:-1]] + [last]
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *params), newest, member


def _steps_to_use(folder, several):
    """The steps whose mean is the model of a run; [None] for the newest, where no step was saved on schedule."""
    if several == 1:
        return [selection.best(folder)]
    return selection.scheduled(folder)[-several:] or [None]


def _choose(path, step, members, member):
    """The member of the lowest score at a step, unless one is asked for. Raises UserError if it is not finite."""
    if members == 1:
        return 0
    scores_M = selection.member_scores(path / "checkpoints", step)
    if member is None:
        if not np.isfinite(scores_M).any():
            unknown = f"{path} does not say which member is the best at step {step:,}"
            raise UserError(f"{unknown}: choose one with --member 0 to {members - 1}", CHECKPOINT)
        return int(np.nanargmin(scores_M))
    if len(scores_M) and np.isnan(scores_M[member]):
        raise UserError(f"--member {member} of {path} is not finite at step {step:,}: give another", NON_FINITE)
    return member
