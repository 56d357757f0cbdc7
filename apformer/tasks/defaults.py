"""Ready-made names of the task protocol: for fresh rows, and for training all parameters of a model.

`load`, `train_rows`, `describe` and `files` are for a task without stored rows: its `rows` is None.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from apformer import loss, optimizer, plugins
from apformer.settings import Settings, architecture_of, training_apply
from apformer.tasks import GROUP, Loss, LossAndMetrics
from apformer.tasks.batch import Batch

__all__ = ["describe", "feed", "files", "floor", "init_from", "initial_params", "load", "make_loss", "make_optimizer"]
__all__ += ["model_params", "stored_settings", "train_rows"]


def load(settings: Settings) -> tuple[Settings, None]:
    """Return the settings, and no rows."""
    return settings, None


def train_rows(rows: Any) -> None:
    """Return None: `sample` draws fresh rows."""


def describe(settings: Settings, rows: Any) -> dict:
    """Return the description of the data in config.json."""
    return {"source": "sampler"}


def files(rows: Any) -> dict:
    """Return no files for the run directory."""
    return {}


def floor(settings: Settings, rows: Any) -> None:
    """Return None: the least possible validation loss is unknown."""


def init_from(settings: Settings) -> str | None:
    """Return the folder of the model that training begins with, if the options name one; None for a new model."""
    return getattr(settings.options, "init_from", None)


def stored_settings(settings: Settings, path: Path) -> Settings:
    """Return the settings: the rows of the run at `path` need none of its files."""
    return settings


def initial_params(key: jax.Array, settings: Settings, loaded: Any = None) -> Any:
    """Return the parameters before the first step: new ones, or a copy of those loaded from `init_from`."""
    if loaded is not None:
        return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(float)), loaded)  # the dtype of `init`
    return architecture_of(settings).init(key, settings.model)


def model_params(params: Any, settings: Settings) -> Any:
    """Return the parameters: all of the model are trained."""
    return params


def make_optimizer(settings: Settings) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of `initial_params`."""
    return optimizer.make(settings.optimizer, settings.training.steps)


def feed(settings: Settings, rows: Any) -> None:
    """Return None: all rows are on the device."""


def make_loss(settings: Settings) -> Loss:
    """Return loss_fn(params, batch, key) -> (loss, metrics): the next-token loss of a `tasks.batch.Batch`.

    The metrics are `loss`, and `exact`: the share of rows in which each token of positive weight is the most likely.
    """
    apply = training_apply(settings)

    def measure(logits_BTV: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return {"exact": right_rows(logits_BTV, batch).mean(dtype=jnp.float32)}

    def loss_fn(params: Any, batch: Batch, key: jax.Array | None) -> LossAndMetrics:
        batch = checked(batch, settings)
        return loss.next_token_loss(
            cast_params(params, settings), batch, key, settings.model, apply=apply, measure=measure
        )

    return loss_fn


def checked(batch: Any, settings: Settings) -> Batch:
    """Return a batch of `sample`. Raises plugins.Fault, a UserError, if it is no Batch."""
    if not hasattr(batch, "weights_BT") or batch.weights_BT.shape != batch.tokens_BT.shape:
        fault = "whose `sample` returns no Batch of tokens and weights of one shape"
        raise plugins.fault(GROUP, settings.task, fault)
    return batch


def cast_params(params: Any, settings: Settings) -> Any:
    """Cast parameters to the compute_dtype of a training step."""
    return jax.tree.map(lambda leaf: leaf.astype(settings.training.compute_dtype), params)


def right_rows(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return the mask of rows that are exactly right, (B,); logits_BTV[:, t] predict batch.tokens_BT[:, t + 1]."""
    return ((logits_BTV.argmax(-1) == batch.tokens_BT[:, 1:]) | (batch.weights_BT[:, 1:] <= 0)).all(1)


def token_nats(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return the nats of each token but the first: (B, T - 1), 0 where its weight is 0."""
    return jnp.where(batch.weights_BT[:, 1:] > 0, loss.token_nats(logits_BTV, batch.tokens_BT[:, 1:]), 0.0)
