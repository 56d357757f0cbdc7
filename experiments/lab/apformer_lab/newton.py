"""Damped Gauss-Newton steps at the end of training, for exact models of at most a few thousand parameters.

    H = sum_i c_i g_i g_i',  g_i = grad nats_i,  c_i = p_i / (1 - p_i),  p_i = exp(-nats_i)    i: characters of a batch
    params <- params - (H + damping diag(H))^-1 sum_i g_i

If one other character rivals the right one, with a margin m, then

    nats = log(1 + e^-m)        c g g' = p (1 - p) grad m grad m'

and H is the curvature of the loss, with m taken as linear in the parameters. A character without loss adds nothing to
H. So H is summed over the `characters` characters with the highest loss, and the gradient over all. Only the first rows
count: as many rows as hold at most `characters` characters with a loss above NEGLIGIBLE. These are few rows at first,
and all rows once most characters are right. Steps with several dampings are compared by the loss of the characters of
H. The best step that also lowers the loss of all rows that count is taken; if there is none, no parameter changes
(Levenberg 1944, Marquardt 1963).

At the end of training the gradients of the margins of so small a model are nearly opposite, and a step size for each
parameter, as in Adam, makes no progress. At the start, where p is small, H has no information.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from apformer import optimizer, train
from apformer.errors import USAGE, UserError
from apformer.flags import require
from apformer.layers import at_least_float32
from apformer.settings import Settings, training_apply
from apformer.tasks.batch import Batch

DAMPINGS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
FLOOR = 1e-9  # least curvature that damping assumes for a parameter, as a share of the largest
NEGLIGIBLE = 1e-3  # nats; where rows are chosen, a smaller loss counts as none

Nats = Callable[[Any, Any], tuple[jax.Array, jax.Array]]
Step = Callable[[train.TrainState, Any], tuple[train.TrainState, dict[str, jax.Array]]]


@dataclass(frozen=True)
class Options:
    """Gauss-Newton steps at the end of training."""

    newton_steps: int = 0
    """Number of Gauss-Newton steps at the end of training. They use no learning rate and no dropout; the schedule ends
    before them."""
    newton_batches: int = 8
    """Number of batches that a Gauss-Newton step uses as one batch, with all candidates of mined rows. With 0, it uses
    every row of training lines, where a task has few enough."""
    newton_characters: int = 8192
    """Number of characters with the highest loss, from which the Gauss-Newton matrix is computed. Rows count until
    they hold more characters than this with a loss above 0.001 nats."""


def check(settings: Settings, least_batches: int = 1) -> None:
    """Check the options of Gauss-Newton steps.

    Args:
        settings: Settings whose options have the fields of `Options`.
        least_batches: Least value of `newton_batches`; 0 for a task that knows every training row.

    Raises:
        UserError: Exit code USAGE; the sentence names the flag and what fits.
    """
    run, options = settings.training, settings.options
    require("newton_steps", 0 <= options.newton_steps <= run.steps, options, f"0 to --steps, {run.steps}")
    fits = least_batches <= options.newton_batches < 2**31
    require("newton_batches", fits, options, f"{least_batches} to 2147483647")
    require("newton_characters", 1 <= options.newton_characters < 2**31, options, "1 to 2147483647")
    if options.newton_steps and run.ema:
        raise UserError(f"--ema {run.ema} averages no Gauss-Newton steps: give 0, or drop --newton_steps", USAGE)
    if options.newton_steps and run.members > 1 and run.member_mode == "vmap":
        fault = "--member_mode vmap would compute both kinds of steps in each step, with --newton_steps"
        raise UserError(f"{fault}: give --member_mode map, or --members 1", USAGE)


def make_optimizer(settings: Settings) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of the steps before the Gauss-Newton steps, where its schedule ends."""
    return optimizer.make(settings.optimizer, settings.training.steps - settings.options.newton_steps)


def make_nats(settings: Settings) -> Nats:
    """Return nats_fn(params, batch) -> (nats_BT, weights_BT): the loss of each character, and its weight."""
    apply = training_apply(settings)

    def nats_fn(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        logits_BTV = apply(params, batch.tokens_BT[:, :-1], settings.model)
        return small_nats(logits_BTV, batch.tokens_BT[:, 1:]), batch.weights_BT[:, 1:]

    return nats_fn


def train_step(settings: Settings, loss_fn: Callable, step: Step, nats_fn: Nats, draw: Callable) -> Step:
    """Return a train step that is a Gauss-Newton step in the last `newton_steps` steps of a run.

    Args:
        settings: Settings whose options have the fields of `Options`.
        loss_fn: Function (params, batch, key) -> (loss, metrics); a Gauss-Newton step takes its metrics without a key.
        step: Train step of the steps before. Without Gauss-Newton steps, it is returned unchanged.
        nats_fn: Function (params, batch) -> (nats_BT, weights_BT).
        draw: Function key -> the batch of a Gauss-Newton step.
    """
    options = settings.options
    if not options.newton_steps:
        return step
    newton_step = make_train_step(nats_fn, loss_fn, options.newton_characters)
    begins = settings.training.steps - options.newton_steps

    def usual(state: train.TrainState, batch: Any) -> tuple[train.TrainState, dict]:
        rate = optimizer.learning_rate(state.step, state.hyper["learning_rate"], settings.optimizer, begins)
        state, metrics = step(state, batch)
        return state, metrics | {"learning_rate": rate}

    def last(state: train.TrainState, batch: Any) -> tuple[train.TrainState, dict]:
        state, metrics = newton_step(state, draw(train.keys_of(state.key, state.step)[1]))
        return state, metrics | {"learning_rate": jnp.zeros(())}

    return lambda state, batch: jax.lax.cond(state.step < begins, usual, last, state, batch)


def sample_many(sample: Callable, count: int) -> Callable:
    """Return a function of a key that draws `count` batches with `sample`, and concatenates their rows."""

    def sample_all(key: jax.Array) -> Any:
        batches = jax.lax.map(sample, jax.random.split(key, count))
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batches)

    return sample_all


def make_train_step(nats_fn: Nats, loss_fn: Callable, characters: int) -> Step:
    """Return a pure function (state, batch) -> (state, metrics), as `train.make_train_step` does.

    Args:
        nats_fn: Function (params, batch) -> (nats_BT, weights_BT); every leaf of a batch has a leading axis of rows.
        loss_fn: Function (params, batch, None) -> (loss, metrics).
        characters: Number of characters that H is summed over, those with the highest loss.
    """

    def newton_step(state: train.TrainState, batch: Any) -> tuple[train.TrainState, dict[str, jax.Array]]:
        flat_P, unflatten = ravel_pytree(state.params)

        def nats(flat_P: jax.Array) -> tuple[jax.Array, jax.Array]:
            return nats_fn(unflatten(flat_P), batch)

        nats_BT, pull, weights_BT = jax.vjp(nats, flat_P, has_aux=True)
        weights_BT = _scale_weights(nats_BT, weights_BT, characters)
        cost_BT = _costs(nats_BT, weights_BT)
        _, chosen_N = jax.lax.top_k(cost_BT.ravel(), min(characters, cost_BT.size))
        row_N, column_N = jnp.unravel_index(chosen_N, cost_BT.shape)
        weight_N = weights_BT[row_N, column_N]

        def of_character(flat_P: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
            one = jax.tree.map(lambda leaf: leaf[row][None], batch)
            return nats_fn(unflatten(flat_P), one)[0][0, column]

        def of_chosen(flat_P: jax.Array) -> jax.Array:
            return _costs(jax.vmap(of_character, (None, 0, 0))(flat_P, row_N, column_N), weight_N).sum()

        gradient_NP = jax.vmap(jax.grad(of_character), (None, 0, 0))(flat_P, row_N, column_N)
        counts_N = weight_N > 0  # padding may hold anything
        nats_N = jnp.where(counts_N, nats_BT[row_N, column_N], 0.0)
        (total_P,) = pull(weights_BT)
        steps_JP = steps(nats_N, jnp.where(counts_N[:, None], gradient_NP, 0.0), weight_N, total_P)
        loss_J = jax.lax.map(lambda step_P: of_chosen(flat_P + step_P), steps_JP)
        order_J = jnp.argsort(jnp.where(jnp.isfinite(loss_J), loss_J, jnp.inf))

        def worse(j: jax.Array) -> jax.Array:
            # Compared so that a loss that is not finite is worse.
            return ~(_costs(nats(flat_P + steps_JP[order_J[j]])[0], weights_BT).sum() < cost_BT.sum())

        tries = len(DAMPINGS)
        j = jax.lax.while_loop(lambda j: (j < tries) & worse(jnp.minimum(j, tries - 1)), lambda j: j + 1, jnp.int32(0))
        best_P = jnp.where(j < tries, steps_JP[order_J[jnp.minimum(j, tries - 1)]], 0.0)
        params = unflatten(flat_P + best_P)
        _, metrics = loss_fn(params, batch, None)
        return state._replace(step=state.step + 1, params=params), metrics

    return newton_step


def _scale_weights(nats_BT: jax.Array, weights_BT: jax.Array, characters: int) -> jax.Array:
    """Return the weights, scaled to a sum of 1; 0 for rows after the first `characters` costly characters."""
    costly_B = ((nats_BT > NEGLIGIBLE) & (weights_BT > 0)).sum(1)
    weights_BT = jnp.where((jnp.cumsum(costly_B) <= characters)[:, None], weights_BT, 0.0)
    return weights_BT / jnp.maximum(weights_BT.sum(), jnp.finfo(weights_BT.dtype).tiny)


def _costs(nats_BT: jax.Array, weights_BT: jax.Array) -> jax.Array:
    return jnp.where(weights_BT > 0, nats_BT * weights_BT, 0.0)


def steps(nats_N: jax.Array, gradient_NP: jax.Array, weight_N: jax.Array, gradient_P: jax.Array) -> jax.Array:
    """Return the Gauss-Newton step for each damping: (J, P).

    Args:
        nats_N: Loss of each character of H, in nats.
        gradient_NP: Its gradient.
        weight_N: Its weight.
        gradient_P: Gradient that the step goes down.
    """
    curvature_N = weight_N * jnp.exp(-nats_N) / jnp.maximum(-jnp.expm1(-nats_N), jnp.finfo(nats_N.dtype).tiny)
    H_PP = jnp.matmul((gradient_NP * curvature_N[:, None]).T, gradient_NP, precision="highest")
    diagonal_P = jnp.diag(H_PP)
    # Scaled to a diagonal of 1: the diagonal spans twenty powers of ten, too many for float32.
    scale_P = jax.lax.rsqrt(jnp.maximum(diagonal_P, FLOOR * diagonal_P.max()))
    H_PP = H_PP * scale_P[:, None] * scale_P[None]

    def step(damping: jax.Array) -> jax.Array:
        factor = jax.scipy.linalg.cho_factor(H_PP + damping * jnp.eye(len(H_PP), dtype=H_PP.dtype))
        return -scale_P * jax.scipy.linalg.cho_solve(factor, scale_P * gradient_P)

    return jax.vmap(step)(jnp.asarray(DAMPINGS))


def small_nats(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """Return the cross-entropy of each token in nats, (B, T), accurate also near 0.

        nats_t = log(1 + sum_v exp(z_v - z_target)),    v: not the target

    loss.token_nats subtracts two numbers as large as the logits, so that near 0 only rounding errors remain.
    """
    logits_BTV = logits_BTV.astype(at_least_float32(logits_BTV.dtype))
    token_V = jnp.arange(logits_BTV.shape[-1], dtype=jnp.int32)
    target_BTV = token_V[None, None] == targets_BT[:, :, None]
    target_BT1 = jnp.where(target_BTV, logits_BTV, 0.0).sum(-1, keepdims=True)  # a gather's gradient is slow on a CPU
    others_BTV = jnp.where(target_BTV, -jnp.inf, logits_BTV - target_BT1)
    return jax.nn.softplus(jax.nn.logsumexp(others_BTV, axis=-1))
