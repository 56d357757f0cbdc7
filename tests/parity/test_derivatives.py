"""Functions with derivatives of their own against what JAX derives from their equations, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers.feedforward import ACTIVATIONS
from apformer.layers.norm import centred, scaled
from apformer.layers.weighting import softmax_mean

pytestmark = pytest.mark.parity

B, T, S, H, K = 2, 3, 5, 2, 4


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def mask():
    mask_BTS = np.random.default_rng(5).random((B, T, S)) < 0.6
    mask_BTS[:, :, 0] = True
    mask_BTS[1, 2] = False  # a query that sees nothing
    return jnp.asarray(mask_BTS)


def written(function):
    """What is written inside a function, differentiated by JAX."""
    return function.__wrapped__


def of_attention(mask_BTS):
    def bind(function):
        return lambda scores_BHTS, v_BSHK: function(scores_BHTS, mask_BTS, v_BSHK)

    return bind


def of_norm(epsilon):
    return lambda function: lambda x_BTD: function(x_BTD, epsilon)


CASES = {
    "attention": (softmax_mean, of_attention(mask()), (drawn(B, H, T, S), drawn(B, S, H, K, seed=1))),
    "attention, one mask": (softmax_mean, of_attention(mask()[:1]), (drawn(B, H, T, S), drawn(B, S, H, K, seed=1))),
    "LayerNorm": (centred, of_norm(1e-1), (3 * drawn(B, T, 7) + 1,)),
    "LayerNorm, small epsilon": (centred, of_norm(1e-5), (drawn(B, T, 7),)),
    "RMSNorm": (scaled, of_norm(1e-1), (3 * drawn(B, T, 7) + 1,)),
    "gelu": (ACTIVATIONS["gelu"], lambda function: function, (3 * drawn(B, T, 7),)),
    "gelu_tanh": (ACTIVATIONS["gelu_tanh"], lambda function: function, (3 * drawn(B, T, 7),)),
}


def same(found, expected):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == jnp.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_value_and_derivatives_are_those_of_the_equations(name):
    """Gradient and tangent, of every argument and every result."""
    function, bind, args = CASES[name]
    tangents = tuple(drawn(*arg.shape, seed=7 + i) for i, arg in enumerate(args))

    def of(function):
        y, backward = jax.vjp(bind(function), *args)
        weights = jax.tree.map(lambda leaf: drawn(*leaf.shape, seed=11), y)
        return y, backward(weights), jax.jvp(bind(function), args, tangents)[1]

    same(jax.jit(of, static_argnums=0)(function), of(written(function)))


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_are_those_of_the_equations(name):
    function, bind, args = CASES[name]
    tangents = tuple(drawn(*arg.shape, seed=7 + i) for i, arg in enumerate(args))

    def curvature(function):
        def total(*args):
            return sum((leaf**3).sum() for leaf in jax.tree.leaves(bind(function)(*args)))

        return jax.jvp(jax.grad(total, tuple(range(len(args)))), args, tangents)[1]

    same(curvature(function), curvature(written(function)))


@pytest.mark.parametrize("name", CASES)
def test_members_have_the_gradients_they_have_alone(name):
    function, bind, args = CASES[name]
    members = tuple(jnp.stack([arg, 2 * arg]) for arg in args)

    def gradient(*args):
        def total(*args):
            return sum((leaf**2).sum() for leaf in jax.tree.leaves(bind(function)(*args)))

        return jax.grad(total, tuple(range(len(args))))(*args)

    together = jax.vmap(gradient)(*members)
    for member in range(2):
        same(jax.tree.map(lambda leaf, m=member: leaf[m], together), gradient(*(arg[member] for arg in members)))


def test_the_gelu_is_that_of_jax():
    x = jnp.linspace(-8.0, 8.0, 1001)
    np.testing.assert_allclose(ACTIVATIONS["gelu"](x), jax.nn.gelu(x, approximate=False), rtol=0, atol=1e-15)
