"""What most tasks train: all parameters of the model, by the optimizer of the settings."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from apformer import loss, optimizer
from apformer.settings import Settings, architecture_of, training_apply
from apformer.tasks.batch import Batch


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


def make_loss(settings: Settings) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
    """Return loss_fn(params, batch, key) -> (loss, metrics): the next-token loss of a `tasks.batch.Batch`.

    The metrics are `loss`, and `exact`: the share of rows in which every token that counts is the most likely one.
    """
    apply, dtype = training_apply(settings), jnp.dtype(settings.training.compute_dtype)

    def measure(logits_BTV, batch):
        return {"exact": right_rows(logits_BTV, batch).mean(dtype=jnp.float32)}

    def loss_fn(params, batch, key):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        return loss.next_token_loss(params, batch, key, settings.model, apply=apply, measure=measure)

    return loss_fn


def right_rows(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return which rows are exactly right, (B,); logits_BTV[:, t] are those of batch.tokens_BT[:, t + 1]."""
    return ((logits_BTV.argmax(-1) == batch.tokens_BT[:, 1:]) | (batch.weights_BT[:, 1:] <= 0)).all(1)
