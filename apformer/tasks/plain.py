"""What most tasks train: all parameters of the model, by the optimizer of the settings."""

import jax
import jax.numpy as jnp

from apformer import optimizer
from apformer.settings import architecture_of


def init_from(settings):
    """The folder of the model that training begins with, or None."""
    return None


def kept(settings, path):
    """The settings by which the rows of the run at `path` are read again."""
    return settings


def initial_params(key, settings, given=None):
    """What is trained, before the first step; `given` are the parameters of the model that training begins with."""
    if given is not None:
        return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(float)), given)  # as `init` makes them
    return architecture_of(settings).init(key, settings.model)


def whole(params, settings):
    """The parameters of the model from those of the training state."""
    return params


def make_optimizer(settings):
    """The optimizer of `initial_params`."""
    return optimizer.make(settings.optimizer, settings.training.steps)


def feed(settings, rows):
    """Nothing: all rows lie on the device."""
    return None
