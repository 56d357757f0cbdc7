"""Gauss-Newton steps with damping, for models of at most a few thousand numbers.

    H = sum_i c_i g_i g_i',  g_i = grad nats_i,  c_i = p_i / (1 - p_i),  p_i = exp(-nats_i)    i: characters of a batch
    params <- params - (H + damping diag(H))^-1 sum_i g_i

If one other character rivals the right one, nats = log(1 + e^-m) for a margin m, and H is the curvature of the loss
with m linear in the parameters: c g g' = p (1 - p) grad m grad m'. A character that costs nothing adds nothing, so only
those that cost most are summed up. The step is tried with several dampings on the whole batch, and the best is taken;
if none lowers the loss, nothing moves (Levenberg 1944, Marquardt 1963).

It is for the end of training. Then the margins of so small a model pull in nearly opposite directions, and a rate for
each number, as in Adam, gets nowhere. At the start, where p is small, H says nothing.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

DAMPINGS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
FLOOR = 1e-6  # of the largest curvature of a parameter: the least that damping takes it for


def make_train_step(nats_fn, loss_fn):
    """A pure function (state, batch) -> (state, metrics), as `train.make_train_step` makes them.

    nats_fn(params, batch) -> (nats_BT, weights_BT) of every character; a batch has its rows in front in every leaf. As
    many characters as it has rows are summed up, those that cost most. loss_fn(params, batch, None) -> (loss, metrics).
    """

    def train_step(state, batch):
        flat_P, unflatten = ravel_pytree(state.params)

        def costs(flat_P):
            nats_BT, weights_BT = nats_fn(unflatten(flat_P), batch)
            weights_BT = weights_BT / weights_BT.sum()
            return jnp.where(weights_BT > 0, nats_BT * weights_BT, 0.0), weights_BT

        cost_BT, weights_BT = costs(flat_P)
        B, T = cost_BT.shape
        _, kept_N = jax.lax.top_k(cost_BT.ravel(), B)
        row_N, column_N = jnp.unravel_index(kept_N, (B, T))

        def of_character(row, column):
            one = jax.tree.map(lambda leaf: leaf[row][None], batch)
            return jax.value_and_grad(lambda flat_P: nats_fn(unflatten(flat_P), one)[0][0, column])(flat_P)

        nats_N, gradient_NP = jax.vmap(of_character)(row_N, column_N)
        weight_N = weights_BT[row_N, column_N]
        gradient_NP = jnp.where(weight_N[:, None] > 0, gradient_NP, 0.0)  # padding may hold anything
        moved_JP = flat_P[None] + steps(jnp.where(weight_N > 0, nats_N, 0.0), gradient_NP, weight_N)
        tried_JP = jnp.concatenate([flat_P[None], moved_JP])
        loss_J = jax.lax.map(lambda flat_P: costs(flat_P)[0].sum(), tried_JP)
        params = unflatten(tried_JP[jnp.where(jnp.isfinite(loss_J), loss_J, jnp.inf).argmin()])
        _, metrics = loss_fn(params, batch, None)
        return state._replace(step=state.step + 1, params=params), metrics

    return train_step


def steps(nats_N, gradient_NP, weight_N):
    """The step of each damping, (J, P), by characters that cost nats_N and count weight_N."""
    curvature_N = weight_N * jnp.exp(-nats_N) / jnp.maximum(-jnp.expm1(-nats_N), 1e-6)
    H_PP = jnp.matmul((gradient_NP * curvature_N[:, None]).T, gradient_NP, precision="highest")
    diagonal_P, gradient_P = jnp.diag(H_PP), weight_N @ gradient_NP
    diagonal_P = diagonal_P + FLOOR * diagonal_P.max()

    def step(damping):
        return -jnp.linalg.solve(H_PP + damping * jnp.diag(diagonal_P), gradient_P)

    return jax.vmap(step)(jnp.asarray(DAMPINGS))
