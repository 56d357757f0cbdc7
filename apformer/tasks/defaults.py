"""Ready-made names of the task protocol: rows drawn afresh, and all parameters of the model trained.

`load`, `train_rows`, `describe` and `files` are those of a task that keeps no rows: its `rows` are None.
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

__all__ = ["describe", "feed", "files", "floor", "init_from", "initial_params", "kept", "load", "make_loss"]
__all__ += ["make_optimizer", "train_rows", "whole"]


def load(settings: Settings) -> tuple[Settings, None]:
    """Return the settings, and no rows."""
    return settings, None


def train_rows(rows: Any) -> None:
    """Return None: `sample` draws its rows afresh."""


def describe(settings: Settings, rows: Any) -> dict:
    """Return what config.json says of the data."""
    return {"source": "sampler"}


def files(rows: Any) -> dict:
    """Return no files for the run directory."""
    return {}


def floor(settings: Settings, rows: Any) -> None:
    """Return None: the least validation loss is not known."""


def init_from(settings: Settings) -> str | None:
    """Return the folder of the model that training begins with, if the options name one; None for a new model."""
    return getattr(settings.options, "init_from", None)


def kept(settings: Settings, path: Path) -> Settings:
    """Return the settings by which the rows of the run at `path` are read again."""
    return settings


def initial_params(key: jax.Array, settings: Settings, given: Any = None) -> Any:
    """Return the parameters before the first step: new ones, or those given, of the model that training begins with."""
    if given is not None:
        return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(float)), given)  # as `init` makes them
    return architecture_of(settings).init(key, settings.model)


def whole(params: Any, settings: Settings) -> Any:
    """Return the parameters of the model from those of the training state."""
    return params


def make_optimizer(settings: Settings) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of `initial_params`."""
    return optimizer.make(settings.optimizer, settings.training.steps)


def feed(settings: Settings, rows: Any) -> None:
    """Return None: all rows lie on the device."""


def make_loss(settings: Settings) -> Loss:
    """Return loss_fn(params, batch, key) -> (loss, metrics): the next-token loss of a `tasks.batch.Batch`.

    The metrics are `loss`, and `exact`: the share of rows in which every token that counts is the most likely one.
    """
    apply = training_apply(settings)

    def measure(logits_BTV: jax.Array, batch: Batch) -> dict[str, jax.Array]:
        return {"exact": right_rows(logits_BTV, batch).mean(dtype=jnp.float32)}

    def loss_fn(params: Any, batch: Batch, key: jax.Array | None) -> LossAndMetrics:
        batch = checked(batch, settings)
        return loss.next_token_loss(
            computed(params, settings), batch, key, settings.model, apply=apply, measure=measure
        )

    return loss_fn


def checked(batch: Any, settings: Settings) -> Batch:
    """Return what `sample` has drawn. Raises plugins.Fault, a UserError, unless it is a Batch."""
    if not hasattr(batch, "weights_BT") or batch.weights_BT.shape != batch.tokens_BT.shape:
        says = "whose `sample` returns no Batch of tokens and weights of one shape"
        raise plugins.fault(GROUP, settings.task, says)
    return batch


def computed(params: Any, settings: Settings) -> Any:
    """Return parameters in the compute_dtype of a training step."""
    return jax.tree.map(lambda leaf: leaf.astype(settings.training.compute_dtype), params)


def right_rows(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return which rows are exactly right, (B,); logits_BTV[:, t] are those of batch.tokens_BT[:, t + 1]."""
    return ((logits_BTV.argmax(-1) == batch.tokens_BT[:, 1:]) | (batch.weights_BT[:, 1:] <= 0)).all(1)


def token_nats(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Return what each token of rows but the first costs, in nats: (B, T - 1), 0 where it weighs nothing."""
    return jnp.where(batch.weights_BT[:, 1:] > 0, loss.token_nats(logits_BTV, batch.tokens_BT[:, 1:]), 0.0)
