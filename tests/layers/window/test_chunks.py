"""Attention within a window, chunk by chunk, is that of the masked square, and nothing in it has a square's size."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.layers import position
from apformer.layers.window import chunks

WINDOW, T = 5, 41
SCHEMES = [name for name in position.names() if position.sees_window_alone(position.load(name)())]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "LEAST", 7)


def config(name, **changes):
    return model.Config(
        d_model=12, n_heads=3, n_layers=2, d_ff=8, position=name, window=WINDOW, output_projection=True, **changes
    )


@partial(jax.jit, static_argnums=0)
def both(cfg, params, tokens_BT, **options):
    """Logits chunk by chunk, and of the whole square."""
    return [model.apply(params, tokens_BT, cfg, plain=plain, **options) for plain in (False, True)]


@pytest.mark.parametrize("name", SCHEMES)
def test_logits_and_gradients_are_those_of_the_square(name, random_params):
    cfg = config(name, attention_sink=True) if name != "rotary" else config(name)
    params, tokens_BT = random_params(cfg), jax.random.randint(jax.random.key(0), (3, T), 0, 11)
    options = {"lengths_B": jnp.array([T, 9, 30], jnp.int32)}

    def loss(params, plain):
        return jnp.square(model.apply(params, tokens_BT, cfg, plain=plain, **options)).mean()

    ours, theirs = both(cfg, params, tokens_BT, **options)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    ours, theirs = (jax.jit(jax.grad(loss), static_argnums=1)(params, plain) for plain in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, theirs)


def test_positions_may_have_gaps_and_differ_from_row_to_row(random_params):
    cfg = config("relative")
    steps_BT = jax.random.randint(jax.random.key(1), (3, T), 1, 4)
    positions_BT, tokens_BT = jnp.cumsum(steps_BT, axis=1), jax.random.randint(jax.random.key(0), (3, T), 0, 11)
    ours, theirs = both(cfg, random_params(cfg), tokens_BT, positions_BT=positions_BT)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("length", (28, 29, 34, 35, 36, 70))
def test_any_number_of_tokens(length, random_params):
    cfg = config("alibi")
    tokens_BT = jax.random.randint(jax.random.key(0), (2, length), 0, 11)
    ours, theirs = both(cfg, random_params(cfg), tokens_BT)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def largest(cfg, T, **options):
    """The most numbers that an array of a gradient holds, in rows of T tokens."""
    params = jax.eval_shape(lambda key: model.init(key, cfg), jax.random.key(0))
    tokens_BT = jax.ShapeDtypeStruct((1, T), jnp.int32)
    gradient = jax.grad(lambda params, tokens_BT: model.apply(params, tokens_BT, cfg, **options).sum())

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (variable.aval.size for variable in equation.outvars)
            for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda value: hasattr(value, "jaxpr")):
                if hasattr(inner, "jaxpr"):
                    yield from sizes(inner.jaxpr)

    return max(sizes(jax.make_jaxpr(gradient)(params, tokens_BT).jaxpr))


def test_nothing_grows_with_the_square_of_the_length():
    cfg = config("relative")
    assert largest(cfg, 16 * T) <= 4.1 * largest(cfg, 4 * T)
    assert largest(cfg, 16 * T, plain=True) >= 15 * largest(cfg, 4 * T, plain=True)


@pytest.mark.parametrize(
    "window, T, chunk", ((None, 999, None), (5, 27, None), (5, 28, 7), (64, 255, None), (64, 256, 64))
)
def test_chunks_are_for_rows_that_are_long_enough(window, T, chunk):
    assert chunks.size(T, window) == chunk


def test_what_is_captured_is_the_square(random_params):
    cfg = config("none")
    tokens_BT = jax.random.randint(jax.random.key(0), (2, T), 0, 11)
    logits_BTV, captured = model.apply(random_params(cfg), tokens_BT, cfg, capture=("attention",))
    assert captured["attention"].shape == (2, 2, 3, T, T)
    np.testing.assert_array_equal(logits_BTV, model.apply(random_params(cfg), tokens_BT, cfg, plain=True))
