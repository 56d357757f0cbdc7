"""Gauss-Newton steps with damping, for models of at most a few thousand parameters.

    H = sum_i c_i g_i g_i',  g_i = grad nats_i,  c_i = p_i / (1 - p_i),  p_i = exp(-nats_i)    i: characters of a batch
    params <- params - (H + damping diag(H))^-1 sum_i g_i

If one other character rivals the right one, with a margin m, then

    nats = log(1 + e^-m)        c g g' = p (1 - p) grad m grad m'

and H is the curvature of the loss, with m taken as linear in the parameters. A character without loss adds nothing to
H. So H is summed over the `characters` characters with the highest loss, and the gradient over all. Only the first rows
count: as many as hold no more than `characters` characters with a loss above NOTHING. These are few at first, and all
rows once most characters are right. The step is tried with several dampings on the characters of H. The best that
lowers the loss of all rows that count is taken; if none does, nothing moves (Levenberg 1944, Marquardt 1963).

It is for the end of training. Then the margins of so small a model pull in nearly opposite directions, and a rate for
each number, as in Adam, gets nowhere. At the start, where p is small, H says nothing.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

DAMPINGS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
FLOOR = 1e-9  # of the largest curvature of a parameter: the least that damping takes it for
NOTHING = 1e-3  # nats; where rows are chosen, a smaller loss counts as none


def make_train_step(nats_fn, loss_fn, characters):
    """A pure function (state, batch) -> (state, metrics), as `train.make_train_step` makes them.

    nats_fn(params, batch) -> (nats_BT, weights_BT) of every character; a batch has its rows in front in every leaf.
    loss_fn(params, batch, None) -> (loss, metrics). characters: how many H is summed up from, those that cost most.
    """

    def train_step(state, batch):
        flat_P, unflatten = ravel_pytree(state.params)

        def nats(flat_P):
            return nats_fn(unflatten(flat_P), batch)

        nats_BT, pull, weights_BT = jax.vjp(nats, flat_P, has_aux=True)
        weights_BT = _counted(nats_BT, weights_BT, characters)
        cost_BT = _costs(nats_BT, weights_BT)
        _, kept_N = jax.lax.top_k(cost_BT.ravel(), min(characters, cost_BT.size))
        row_N, column_N = jnp.unravel_index(kept_N, cost_BT.shape)
        weight_N = weights_BT[row_N, column_N]

        def of_character(flat_P, row, column):
            one = jax.tree.map(lambda leaf: leaf[row][None], batch)
            return nats_fn(unflatten(flat_P), one)[0][0, column]

        def of_kept(flat_P):
            return _costs(jax.vmap(of_character, (None, 0, 0))(flat_P, row_N, column_N), weight_N).sum()

        gradient_NP = jax.vmap(jax.grad(of_character), (None, 0, 0))(flat_P, row_N, column_N)
        counts_N = weight_N > 0  # padding may hold anything
        nats_N = jnp.where(counts_N, nats_BT[row_N, column_N], 0.0)
        (total_P,) = pull(weights_BT)
        steps_JP = steps(nats_N, jnp.where(counts_N[:, None], gradient_NP, 0.0), weight_N, total_P)
        loss_J = jax.lax.map(lambda step_P: of_kept(flat_P + step_P), steps_JP)
        order_J = jnp.argsort(jnp.where(jnp.isfinite(loss_J), loss_J, jnp.inf))

        def worse(j):
            # Compared so that a loss that is not finite is worse.
            return ~(_costs(nats(flat_P + steps_JP[order_J[j]])[0], weights_BT).sum() < cost_BT.sum())

        tries = len(DAMPINGS)
        j = jax.lax.while_loop(lambda j: (j < tries) & worse(jnp.minimum(j, tries - 1)), lambda j: j + 1, jnp.int32(0))
        taken_P = jnp.where(j < tries, steps_JP[order_J[jnp.minimum(j, tries - 1)]], 0.0)
        params = unflatten(flat_P + taken_P)
        _, metrics = loss_fn(params, batch, None)
        return state._replace(step=state.step + 1, params=params), metrics

    return train_step


def _counted(nats_BT, weights_BT, characters):
    """The weights, scaled to a sum of 1; 0 for the rows after those that hold `characters` characters with a loss."""
    dear_B = ((nats_BT > NOTHING) & (weights_BT > 0)).sum(1)
    weights_BT = jnp.where((jnp.cumsum(dear_B) <= characters)[:, None], weights_BT, 0.0)
    return weights_BT / jnp.maximum(weights_BT.sum(), jnp.finfo(weights_BT.dtype).tiny)


def _costs(nats_BT, weights_BT):
    return jnp.where(weights_BT > 0, nats_BT * weights_BT, 0.0)


def steps(nats_N, gradient_NP, weight_N, gradient_P):
    """The step of each damping, (J, P), down a gradient, by characters that cost nats_N and count weight_N."""
    curvature_N = weight_N * jnp.exp(-nats_N) / jnp.maximum(-jnp.expm1(-nats_N), jnp.finfo(nats_N.dtype).tiny)
    H_PP = jnp.matmul((gradient_NP * curvature_N[:, None]).T, gradient_NP, precision="highest")
    diagonal_P = jnp.diag(H_PP)
    # Scaled to a diagonal of 1: its own spans twenty powers of ten, of which float32 would leave nothing.
    scale_P = jax.lax.rsqrt(jnp.maximum(diagonal_P, FLOOR * diagonal_P.max()))
    H_PP = H_PP * scale_P[:, None] * scale_P[None]

    def step(damping):
        factor = jax.scipy.linalg.cho_factor(H_PP + damping * jnp.eye(len(H_PP), dtype=H_PP.dtype))
        return -scale_P * jax.scipy.linalg.cho_solve(factor, scale_P * gradient_P)

    return jax.vmap(step)(jnp.asarray(DAMPINGS))
