"""Muon's steps: those of optax where no layers take turns, and in turn where they do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers

from apformer.layers import leaves
from apformer.optimizer import muon

SHAPES = {"query": (5, 6, 2, 3), "output": (5, 2, 3, 6), "expand": (5, 6, 13), "contract": (5, 13, 6)}
L = 5


def tree(seed):
    """A matrix of each kind, of five layers: query (L, D, H, K), output (L, H, K, D), two of a feed-forward layer."""
    rng = np.random.default_rng(seed)
    drawn = {name: jax.device_put(rng.standard_normal(shape, np.float32)) for name, shape in SHAPES.items()}
    weights = {name: {"weight": drawn[name]} for name in ("expand", "contract")}
    return {"blocks": {"attention": {name: drawn[name] for name in ("query", "output")}, "feedforward": weights}}


def steps_of(transformation, count):
    """The steps of `count` training steps, whose gradients are drawn."""
    params = tree(0)
    state = transformation.init(params)
    update = jax.jit(transformation.update)
    found = []
    with jax.numpy_dtype_promotion("standard"):
        for seed in range(1, count + 1):
            steps, state = update(tree(seed), state, params)
            found.append(steps)
    return found


def test_a_matrix_of_zeros_stays():
    np.testing.assert_array_equal(muon.orthogonal(jnp.zeros((1, 3, 5))), 0)


def test_steps_equal_those_of_optax():
    def dimensions(params):
        def of(path, leaf):
            role = leaves.matrix(path, leaf.ndim)
            return MuonDimensionNumbers(
                *(tuple(axis % leaf.ndim for axis in axes) for axes in (role.inputs, role.outputs))
            )

        return jax.tree_util.tree_map_with_path(of, params)

    theirs = optax.contrib.muon(0.02, weight_decay=0.3, muon_weight_dimension_numbers=dimensions)
    for ours, expected in zip(steps_of(muon.make(0.02, 0.3), 4), steps_of(theirs, 4), strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, expected)


@pytest.mark.parametrize("every", [3, 7])
def test_layers_take_turns_with_steps_of_as_many_times_the_size(every):
    """The running mean sees all gradients, so a step in turn is `every` times that of a layer that never waits."""
    always, in_turn = steps_of(muon.make(0.02, 0.0), 8), steps_of(muon.make(0.02, 0.0, every), 8)
    for t, (whole, part) in enumerate(zip(always, in_turn, strict=True)):
        for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
            for layer in range(L):
                size = every if (layer + t) % every == 0 else 0
                np.testing.assert_allclose(b[layer], size * a[layer], rtol=1e-4, atol=1e-6)


def test_members_take_the_steps_they_take_alone():
    rule = muon.make(0.02, 0.1, 2)
    params, gradients = (jax.tree.map(lambda *two: jnp.stack(two), tree(k), tree(k + 1)) for k in (0, 10))
    with jax.numpy_dtype_promotion("standard"):
        state = jax.vmap(rule.init)(params)
        together, _ = jax.jit(jax.vmap(rule.update))(gradients, state, params)
        alone, _ = jax.jit(rule.update)(tree(11), rule.init(tree(1)), tree(1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-4, atol=1e-6), together, alone)


def test_inputs_and_outputs_are_the_last_axes_of_every_matrix_in_this_order():
    for role in leaves.LEAVES.values():
        axes = (*role.inputs, *role.outputs)
        assert axes == tuple(range(-len(axes), 0))
