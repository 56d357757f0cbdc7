"""Muon: the steps of a matrix are orthogonal (Jordan et al. 2024).

    m <- b m + (1 - b) g                                        the running mean of the gradient, b = 0.95
    m^ = b m / (1 - b^(t+2)) + (1 - b) g / (1 - b^(t+1))        Nesterov's form of it; step t counts from 0
    W <- W - lr (sqrt(max(1, outputs / inputs)) orthogonal(m^) + decay W)

`orthogonal` brings the singular values of a matrix near 1, by five steps of Newton and Schulz. Their products take half
as long as the gradient of a small model on a CPU. So layers can take turns: with every = n, layer l takes a step of n
times the size where l + t is a multiple of n, and none in the other steps. Its running mean sees every gradient.

`optax.contrib.muon` has no turns: with it, a step of the recipe baby_gpt_cpu took 1.32 times as long (two AMD EPYC
cores, processor time, median of 8 alternate turns of 10 steps). Without turns both take the same time, and steps that
are equal to rounding.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from optax.contrib import MuonState

from apformer.layers import leaves

MEAN_DECAY = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al.: small singular values grow 3.4 times in each step
ITERATIONS = 5
EPSILON = 1e-8


def make(learning_rate: Any, weight_decay: Any, every: int = 1) -> optax.GradientTransformation:
    """Return the optax transformation for matrices, which `layers/leaves.py` knows by their paths.

    every: number of training steps in which each layer takes one. Layers are the leading axis of a matrix.
    """
    return optax.chain(
        _orthogonal_means(every),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def orthogonal(x_LIO: Array, coefficients: Any = COEFFICIENTS) -> Array:
    """Return U S V^T for each matrix U diag V^T, with all singular values S near 1: (L, I, O).

    X = x / |x|, then five times X <- a X + (b A + c A^2) X with A = X X^T, and a, b, c the coefficients. With more
    inputs than outputs X <- a X + X (b A + c A^2) with A = X^T X is the same, and A is smaller.
    """
    a, b, c = jnp.asarray(coefficients).astype(x_LIO.dtype)

    def polynomial(A_LIJ: Array) -> Array:
        # A is its own transpose, and with the left factor transposed a CPU takes two thirds of the time.
        return b * A_LIJ + c * jnp.einsum("LKI,LKJ->LIJ", A_LIJ, A_LIJ)

    def wide(x_LIO: Array) -> Array:
        A_LIJ = jnp.einsum("LIO,LJO->LIJ", x_LIO, x_LIO)
        return jnp.einsum("LJI,LJO->LIO", polynomial(A_LIJ), x_LIO)

    def tall(x_LIO: Array) -> Array:
        A_LOJ = jnp.einsum("LIO,LIJ->LOJ", x_LIO, x_LIO)
        return jnp.einsum("LIJ,LJO->LIO", x_LIO, polynomial(A_LOJ))

    cubic_and_quintic = tall if x_LIO.shape[1] > x_LIO.shape[2] else wide
    x_LIO = x_LIO / (jnp.linalg.norm(x_LIO, axis=(1, 2), keepdims=True) + EPSILON)
    for _ in range(ITERATIONS):
        x_LIO = a * x_LIO + cubic_and_quintic(x_LIO)
    return x_LIO


def _orthogonal_means(every: int) -> optax.GradientTransformation:
    """Turn gradients into sqrt(max(1, outputs / inputs)) orthogonal(m^), times `every` in layers whose turn it is.

    All other layers get 0.
    """

    def init(params: Any) -> MuonState:
        mean = jax.tree.map(jnp.zeros_like, params)
        return MuonState(jnp.zeros([], jnp.int32), mean, jnp.asarray(COEFFICIENTS))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, MuonState]:
        mean = optax.tree.update_moment(updates, state.mu, MEAN_DECAY, 1)
        count = optax.safe_increment(state.count)

        def step(path: tuple, m: Array, g: Array) -> Array:
            role = leaves.role(path)
            inputs, outputs = (math.prod(m.shape[axis] for axis in axes) for axes in (role.inputs, role.outputs))
            m_LIO, g_LIO = (leaf.reshape(-1, inputs, outputs) for leaf in (m, g))
            take, place = _turns(m_LIO, state.count, every)
            m_LIO = optax.tree.bias_correction(take(m_LIO), MEAN_DECAY, optax.safe_increment(count))
            g_LIO = optax.tree.bias_correction(take(g_LIO), MEAN_DECAY, count)
            nesterov_LIO = MEAN_DECAY * m_LIO + (1 - MEAN_DECAY) * g_LIO  # m^
            step_LIO = place(orthogonal(nesterov_LIO, state.ns_coeffs))
            return (max(1.0, outputs / inputs) ** 0.5 * step_LIO).reshape(m.shape)

        steps = jax.tree_util.tree_map_with_path(step, mean, updates)
        return steps, MuonState(count, mean, state.ns_coeffs)

    return optax.GradientTransformation(init, update)


def _turns(x_LIO: Array, t: Any, every: int) -> tuple[Callable, Callable]:
    """Return two functions for step t: take the layers whose turn it is, and put their steps back, times `every`."""
    if every == 1:
        return lambda x_LIO: x_LIO, lambda step_LIO: step_LIO
    turn_L = (-t) % every + every * jnp.arange(-(-len(x_LIO) // every), dtype=jnp.int32)  # may go past the last layer

    def place(step_LIO: Array) -> Array:
        return jnp.zeros_like(x_LIO).at[turn_L].set(every * step_LIO, mode="drop")

    return lambda x_LIO: jnp.take(x_LIO, turn_L, axis=0, mode="clip"), place
