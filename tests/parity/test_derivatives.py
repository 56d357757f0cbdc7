"""Functions with derivatives of their own against what JAX derives from their equations, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import layers
from apformer.layers import fast
from apformer.layers.attention import softmax_sum
from apformer.layers.feedforward import ACTIVATIONS, product
from apformer.layers.norm import centred

pytestmark = pytest.mark.parity

B, T, S, H, K = 2, 3, 5, 2, 4


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def mask():
    mask_BTS = np.random.default_rng(5).random((B, T, S)) < 0.6
    mask_BTS[:, :, 0] = True
    mask_BTS[1, 2] = False  # a query that sees nothing
    return jnp.asarray(mask_BTS)


def of_attention(mask_BTS):
    return lambda function: lambda scores_BHTS, v_BSHK: function(scores_BHTS, mask_BTS, v_BSHK)


def of_norm(epsilon):
    return lambda function: lambda x_BTD: function(x_BTD, epsilon)


def itself(function):
    return function


def matrices(D, F, rows=4):
    """x and W; of the widest, x or the derivative of x W is the narrower of the two that a gradient multiplies."""
    return drawn(1, rows, D), drawn(D, F, seed=1)


CASES = {  # the function, what of its arguments is bound, the others
    "attention": (softmax_sum, of_attention(mask()), (drawn(B, H, T, S), drawn(B, S, H, K, seed=1))),
    "attention, one mask": (softmax_sum, of_attention(mask()[:1]), (drawn(B, H, T, S), drawn(B, S, H, K, seed=1))),
    "LayerNorm": (centred, of_norm(1e-1), (3 * drawn(B, T, 7) + 1,)),
    "LayerNorm, small epsilon": (centred, of_norm(1e-5), (drawn(B, T, 7),)),
    "gelu": (ACTIVATIONS["gelu"], itself, (3 * drawn(B, T, 7),)),
    "gelu_tanh": (ACTIVATIONS["gelu_tanh"], itself, (3 * drawn(B, T, 7),)),
    "product, narrow": (product, itself, matrices(7, fast.WIDE + 3)),
    "product, wide": (product, itself, matrices(fast.WIDE, fast.WIDE + 3)),
    "product, wide to narrower": (product, itself, matrices(fast.WIDE + 3, fast.WIDE)),
    "product, few rows": (product, itself, matrices(fast.WIDE + 3, fast.WIDE, 2)),
}
each_function = pytest.mark.parametrize("name", CASES)


def same(found, expected):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == jnp.float64
        largest = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12 * largest)


def total(run, power):
    return lambda *args: sum((leaf**power).sum() for leaf in jax.tree.leaves(run(*args)))


@each_function
def test_value_and_derivatives_are_those_of_the_equations(name):
    """Gradient and tangent, of every argument and every result, and the tangent of the gradient."""
    function, bind, args = CASES[name]
    tangents = tuple(drawn(*arg.shape, seed=7 + i) for i, arg in enumerate(args))

    def of(function):
        run = bind(function)
        y, backward = jax.vjp(run, *args)
        weights = jax.tree.map(lambda leaf: drawn(*leaf.shape, seed=11), y)
        curvature = jax.jvp(jax.grad(total(run, 3), tuple(range(len(args)))), args, tangents)[1]
        return y, backward(weights), jax.jvp(run, args, tangents)[1], curvature

    same(jax.jit(of, static_argnums=0)(function), of(function.__wrapped__))


@each_function
def test_members_have_the_gradients_they_have_alone(name):
    function, bind, args = CASES[name]
    members = tuple(jnp.stack([arg, 2 * arg]) for arg in args)
    gradient = jax.grad(total(bind(function), 2), tuple(range(len(args))))
    together = jax.jit(jax.vmap(gradient))(*members)
    for member in range(2):
        same(jax.tree.map(lambda leaf, m=member: leaf[m], together), gradient(*(arg[member] for arg in members)))


def test_plain_leaves_them_out(monkeypatch):
    """With APFORMER_PLAIN a function is its equations: no rule of its own is in the program."""

    def program():
        return str(jax.make_jaxpr(lambda x_BTD: centred(x_BTD, 0.1))(drawn(B, T, 7)))

    assert "custom_jvp" in program()
    monkeypatch.setattr(layers, "PLAIN", True)
    assert "custom_jvp" not in program()
