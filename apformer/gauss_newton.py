"""Gauss-Newton steps with damping, for models of at most a few thousand numbers.

    H = sum_i c_i g_i g_i',  g_i = grad nats_i,  c_i = p_i / (1 - p_i),  p_i = exp(-nats_i)    i: characters of a batch
    params <- params - (H + damping diag(H))^-1 sum_i g_i

If one other character rivals the right one, nats = log(1 + e^-m) for a margin m, and H is the curvature of the loss
with m linear in the parameters: c g g' = p (1 - p) grad m grad m'. A character that costs nothing adds nothing, so only
those that cost most are summed up. Of the rows, as many count as have no more characters than these that cost anything:
few at first, and all of them once most characters are right. The step is tried with several dampings on all rows that
count, and the best is taken; if none lowers the loss, nothing moves (Levenberg 1944, Marquardt 1963).

It is for the end of training. Then the margins of so small a model pull in nearly opposite directions, and a rate for
each number, as in Adam, gets nowhere. At the start, where p is small, H says nothing.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

DAMPINGS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
FLOOR = 1e-6  # of the largest curvature of a parameter: the least that damping takes it for
NOTHING = 1e-3  # nats that count as costing nothing, where rows are chosen


def make_train_step(nats_fn, loss_fn, characters):
    """A pure function (state, batch) -> (state, metrics), as `train.make_train_step` makes them.

    nats_fn(params, batch) -> (nats_BT, weights_BT) of every character; a batch has its rows in front in every leaf.
    loss_fn(params, batch, None) -> (loss, metrics). characters: how many are summed up, those that cost most.
    """

    def train_step(state, batch):
        flat_P, unflatten = ravel_pytree(state.params)
        nats_BT, weights_BT = nats_fn(state.params, batch)
        weights_BT = _counted(nats_BT, weights_BT, characters)
        cost_BT = _costs(nats_BT, weights_BT)
        _, kept_N = jax.lax.top_k(cost_BT.ravel(), min(characters, cost_BT.size))
        row_N, column_N = jnp.unravel_index(kept_N, cost_BT.shape)

        def of_character(row, column):
            one = jax.tree.map(lambda leaf: leaf[row][None], batch)
            return jax.value_and_grad(lambda flat_P: nats_fn(unflatten(flat_P), one)[0][0, column])(flat_P)

        nats_N, gradient_NP = jax.vmap(of_character)(row_N, column_N)
        weight_N = weights_BT[row_N, column_N]
        gradient_NP = jnp.where(weight_N[:, None] > 0, gradient_NP, 0.0)  # padding may hold anything
        moved_JP = flat_P[None] + steps(jnp.where(weight_N > 0, nats_N, 0.0), gradient_NP, weight_N)
        loss_J = jax.lax.map(lambda flat_P: _costs(nats_fn(unflatten(flat_P), batch)[0], weights_BT).sum(), moved_JP)
        loss_J = jnp.append(cost_BT.sum(), jnp.where(jnp.isfinite(loss_J), loss_J, jnp.inf))
        params = unflatten(jnp.concatenate([flat_P[None], moved_JP])[loss_J.argmin()])
        _, metrics = loss_fn(params, batch, None)
        return state._replace(step=state.step + 1, params=params), metrics

    return train_step


def _counted(nats_BT, weights_BT, characters):
    """The weights of the first rows that have up to so many characters that cost anything, 0 for the others; sum 1."""
    dear_B = ((nats_BT > NOTHING) & (weights_BT > 0)).sum(1)
    weights_BT = jnp.where((jnp.cumsum(dear_B) <= characters)[:, None], weights_BT, 0.0)
    return weights_BT / jnp.maximum(weights_BT.sum(), jnp.finfo(weights_BT.dtype).tiny)


def _costs(nats_BT, weights_BT):
    return jnp.where(weights_BT > 0, nats_BT * weights_BT, 0.0)


def steps(nats_N, gradient_NP, weight_N):
    """The step of each damping, (J, P), by characters that cost nats_N and count weight_N."""
    curvature_N = weight_N * jnp.exp(-nats_N) / jnp.maximum(-jnp.expm1(-nats_N), jnp.finfo(nats_N.dtype).tiny)
    H_PP = jnp.matmul((gradient_NP * curvature_N[:, None]).T, gradient_NP, precision="highest")
    diagonal_P, gradient_P = jnp.diag(H_PP), weight_N @ gradient_NP
    diagonal_P = diagonal_P + FLOOR * diagonal_P.max()

    def step(damping):
        return -jnp.linalg.solve(H_PP + damping * jnp.diag(diagonal_P), gradient_P)

    return jax.vmap(step)(jnp.asarray(DAMPINGS))
