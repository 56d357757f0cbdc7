"""The product with its own derivatives is the plain product, in float64: both branches, both kinds of derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers import linear

pytestmark = pytest.mark.parity

WIDTHS = [(7, 131), (131, 7), (131, 137), (137, 131)]  # a narrow matrix, and x or dL/dy as the narrower of the two


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize(("D", "F"), WIDTHS)
def test_value_and_derivatives_are_those_of_the_plain_product(D, F):
    x_BTD, W_DF, g_BTF = drawn(3, 5, D), drawn(D, F, seed=1), drawn(3, 5, F, seed=2)
    tangents = drawn(3, 5, D, seed=3), drawn(D, F, seed=4)

    def of(product):
        y_BTF, backward = jax.vjp(product, x_BTD, W_DF)
        return y_BTF, *backward(g_BTF), jax.jvp(product, (x_BTD, W_DF), tangents)[1]

    for found, expected in zip(jax.jit(of, static_argnums=0)(linear.product), of(linear.plain), strict=True):
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)
    dW_DF = np.einsum("btd,btf->df", x_BTD, g_BTF)
    np.testing.assert_allclose(of(linear.product)[2], dW_DF, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("D", "F"), WIDTHS)
def test_members_have_the_gradients_they_have_alone(D, F):
    x_MBTD, W_MDF = drawn(2, 3, 5, D), drawn(2, D, F, seed=1)

    def gradient(x_BTD, W_DF):
        return jax.grad(lambda W_DF: jnp.square(linear.product(x_BTD, W_DF)).sum())(W_DF)

    together = jax.jit(jax.vmap(gradient))(x_MBTD, W_MDF)
    for found, x_BTD, W_DF in zip(together, x_MBTD, W_MDF, strict=True):
        np.testing.assert_allclose(found, gradient(x_BTD, W_DF), rtol=1e-12, atol=1e-12)


def test_second_derivatives_are_those_of_the_plain_product():
    x_BTD, W_DF, v_DF = drawn(1, 2, 131), drawn(131, 137, seed=1), drawn(131, 137, seed=2)

    def curvature(product):
        gradient = jax.grad(lambda W_DF: (product(x_BTD, W_DF) ** 3).sum())
        return jax.jvp(gradient, (W_DF,), (v_DF,))[1]

    np.testing.assert_allclose(curvature(linear.product), curvature(linear.plain), rtol=1e-10, atol=1e-8)
