"""The training loop: pure steps, scanned on the device, for one model or a population of them.

    g = grad loss(params, batch, key),  params <- params + optimizer(g)          one step, a pure function of the state
    mean <- d mean + (1 - d) params,    d = min(ema, (1 + t) / (10 + t))         if the model is the running mean

Models and tasks are passed in as functions. All randomness of step t is drawn from fold_in(key, t), so that a resumed
run needs nothing but its state.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

Loss = Callable[[dict, Any, Array | None], tuple[Array, dict]]


class TrainState(NamedTuple):
    """State of a training run; in a population every leaf has a leading axis M of members.

    Attributes:
        step: Number of steps done, int32.
        key: Random key, from which the keys of all steps are made.
        params: Parameters of the model.
        opt_state: State of the optimizer.
        hyper: {name: number}, such as the learning rate of each member.
        mean: Running mean of the parameters, or None for a run that keeps none.
    """

    step: Array
    key: Array
    params: dict
    opt_state: Any
    hyper: dict
    mean: dict | None = None


Step = Callable[[TrainState, Any], tuple[TrainState, dict]]


def init_state(
    key: Array, params: dict, optimizer: optax.GradientTransformation, hyper: dict, ema: float = 0.0
) -> TrainState:
    """Return the state before the first step.

    Args:
        key: Root of all randomness of training.
        params: Parameters of the model.
        optimizer: Any optimizer of optax.
        hyper: {name: number} for an optimizer that takes it, see `make_train_step`; {} for others.
        ema: Decay of the running mean of the parameters, as for `make_train_step`.
    """
    mean = jax.tree.map(jnp.copy, params) if ema else None
    return TrainState(jnp.zeros((), jnp.int32), key, params, optimizer.init(params), hyper, mean)


def trained(state: TrainState) -> dict:
    """Return the parameters of the trained model: the running mean if the state keeps one, else `state.params`."""
    return state.params if state.mean is None else state.mean


def keys_of(key: Array, step: Array | int) -> Array:
    """Return the keys of a step: one for dropout, one for its batch. key: that of the state."""
    return jax.random.split(jax.random.fold_in(key, step))


def make_train_step(
    loss_fn: Loss, optimizer: optax.GradientTransformation, accumulate: int = 1, ema: float = 0.0
) -> Step:
    """Return a training step: a pure function (state, batch) -> (state, metrics).

    Args:
        loss_fn: Function (params, batch, key) -> (loss, metrics).
        optimizer: Any optimizer of optax. One that takes extra arguments gets `hyper` and `step`.
        accumulate: Number of batches of a step, on a leading axis if there are several. They are computed one after the
            other, so that one needs memory at a time, and their gradients are averaged.
        ema: Decay of the running mean of the parameters (Polyak and Juditsky 1992); 0 for none. It is smaller in the
            first steps, so that the initial parameters are soon forgotten.
    """
    optimizer = optax.with_extra_args_support(optimizer)
    gradient = jax.value_and_grad(loss_fn, has_aux=True)
    gradient = gradient if accumulate == 1 else mean_over_batches(gradient, accumulate)

    def train_step(state: TrainState, batch: Any) -> tuple[TrainState, dict]:
        key, _ = keys_of(state.key, state.step)
        (_, metrics), gradients = gradient(state.params, batch, key)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes weak and strong types
            updates, opt_state = optimizer.update(
                gradients, state.opt_state, state.params, hyper=state.hyper, step=state.step
            )
            params: Any = optax.apply_updates(state.params, updates)
        mean = _mean(state.mean, params, state.step, ema) if ema else None
        return TrainState(state.step + 1, state.key, params, opt_state, state.hyper, mean), metrics

    return train_step


def _mean(mean: Any, params: Any, step: Array, ema: float) -> dict:
    """Return the running mean after one more step."""
    step = step.astype(jnp.float32)
    share = 1.0 - jnp.minimum(ema, (1.0 + step) / (10.0 + step))
    return jax.tree.map(lambda old, new: old + share.astype(new.dtype) * (new - old), mean, params)


def mean_over_batches(function: Callable, count: int) -> Callable:
    """Average function(params, batch, key) -> arrays over `count` batches on a leading axis, each with its own key.

    The batches are computed one after the other, and have equal weight, whatever the weights of their rows.
    """

    def mean(params: dict, batches: Any, key: Array) -> Any:
        keys = jax.random.split(key, count)

        def add(total: Any, batch_and_key: tuple) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, function(params, *batch_and_key)), None

        shapes = jax.eval_shape(function, params, *jax.tree.map(lambda leaf: leaf[0], (batches, keys)))
        zeros = jax.tree.map(jnp.zeros_like, shapes)
        total, _ = jax.lax.scan(add, zeros, (batches, keys))
        return jax.tree.map(lambda leaf: leaf / count, total)

    return mean


def sample_batches(sample: Callable, count: int) -> Callable:
    """Turn sample(key, ...) of one batch into a function of `count` batches on a leading axis, each with its own key.

    Other arguments have that axis, too, and `sample` gets one slice of each.
    """
    if count == 1:
        return sample
    # One after the other: not every generator gives the same numbers under vmap.
    return lambda key, *args: jax.lax.map(lambda batch: sample(*batch), (jax.random.split(key, count), *args))


def switch(branches: Sequence[Loss]) -> Loss:
    """Return loss_fn(params, (index, batch), key) -> (loss, metrics), that of branches[index](params, batch, key).

    The gradient is taken inside the branch: taken from outside, every branch would allocate the saved arrays of all
    others. Differentiable in params alone.
    """

    @jax.custom_vjp
    def loss_fn(params: dict, batch: tuple, key: Array) -> tuple[Array, dict]:
        return jax.lax.switch(batch[0], branches, params, batch[1], key)

    def forward(params: dict, batch: tuple, key: Array) -> tuple:
        gradients = [jax.value_and_grad(branch, has_aux=True) for branch in branches]
        return jax.lax.switch(batch[0], gradients, params, batch[1], key)

    def backward(gradients: dict, cotangents: tuple) -> tuple:
        return jax.tree.map(lambda leaf: leaf * cotangents[0], gradients), None, None

    loss_fn.defvjp(forward, backward)
    return loss_fn


def scan_steps(train_step: Step, sample: Callable, steps: int) -> Callable:
    """Return a pure function state -> (state, metrics of each step), with a fresh batch sample(key) for each step.

    Other arguments have a leading axis of steps, and sample(key, ...) gets the slices of its step.
    """

    def body(state: TrainState, args: tuple) -> tuple[TrainState, dict]:
        _, batch_key = keys_of(state.key, state.step)
        return train_step(state, sample(batch_key, *args))

    return lambda state, *args: jax.lax.scan(body, state, args, length=steps)


def over_members(function: Callable, mode: str) -> Callable:
    """Lift a function of one member to a population: "vmap" all at once, or "map" one after the other.

    Mapped members are bit-equal to runs alone, and faster on a CPU; vmapped ones fill an accelerator.
    """
    if mode == "vmap":
        return jax.vmap(function, spmd_axis_name="member")  # the axis of a mesh, where there is one
    return lambda *args: jax.lax.map(lambda members: function(*members), args)
