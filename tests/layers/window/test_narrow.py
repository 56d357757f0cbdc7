"""Attention within a narrow window, rows side by side, is that of the masked square, and so is its gradient."""

from functools import partial

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

from apformer import model
from apformer.layers import attention
from apformer.layers.masks import causal_mask
from apformer.layers.position import relative
from apformer.layers.window import narrow

B, T = 9, 19
SCHEMES = ("none", "alibi", "relative")


def config(name="relative", **changes):
    shape = {"d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 8, "window": 5, "output_projection": True}
    return model.Config(position=name, **shape | changes)


@partial(jax.jit, static_argnames="cfg")
def both(cfg, params, tokens_BT, **options):
    """Logits offset by offset, and of the whole square."""
    return [model.apply(params, tokens_BT, cfg, plain=plain, **options) for plain in (False, True)]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("changes", ({"attention_sink": True}, {"attention_bias": True}, {"output_projection": False}))
def test_logits_and_gradients_are_those_of_the_square(name, changes, random_params):
    cfg = config(name, **changes)
    params, tokens_BT = random_params(cfg), jax.random.randint(jax.random.key(0), (B, T), 0, 11)
    assert narrow.serve(cfg, B, T)

    @partial(jax.jit, static_argnums=1)
    @jax.grad
    def gradient(params, plain):
        return jnp.square(model.apply(params, tokens_BT, cfg, plain=plain)).mean()

    np.testing.assert_allclose(*both(cfg, params, tokens_BT), atol=2e-5)
    ours, theirs = (gradient(params, plain) for plain in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, theirs)


def square(q_HKTB, k_HKTB, v_HKTB, bias_HW, sink_H):
    """The same by attention.attend, of the whole square."""
    (_, _, T, _), W = q_HKTB.shape, bias_HW.shape[1]
    position_1T = jnp.arange(T)[None]
    offset_TS = position_1T.T - position_1T
    bias_HTS = bias_HW[:, jnp.clip(W - 1 - offset_TS, 0, W - 1)]
    heads = (x_HKTB.transpose(3, 2, 0, 1) for x_HKTB in (q_HKTB, k_HKTB, v_HKTB))
    y_BTHK, _ = attention.attend(*heads, causal_mask(position_1T, position_1T, W), bias_HTS[None], sink_H)
    return y_BTHK.transpose(2, 3, 1, 0)


@hypothesis.given(
    shape=strategies.tuples(*(strategies.integers(1, most) for most in (3, 5, 9, 4))),
    W=strategies.integers(1, 6),
    sink=strategies.booleans(),
    scale=strategies.sampled_from((0.1, 1.0, 30.0)),
)
@hypothesis.settings(max_examples=25, deadline=None)
def test_values_and_gradients_in_float64(shape, W, sink, scale):
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(sum(shape)), 6)
        q, k, v, dy = (scale * jax.random.normal(key, shape, jnp.float64) for key in keys[:4])
        bias_HW = jax.random.normal(keys[4], (shape[0], W), jnp.float64)
        sink_H = jax.random.normal(keys[5], (shape[0],), jnp.float64) if sink else None
        (ours, pull), (theirs, pull_theirs) = (jax.vjp(f, q, k, v, bias_HW, sink_H) for f in (narrow.attend, square))
        np.testing.assert_allclose(ours, theirs, atol=1e-12 * scale)
        for a, b in zip(jax.tree.leaves(pull(dy)), jax.tree.leaves(pull_theirs(dy)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * scale**3)


def test_one_head_by_hand():
    q_HKTB, k_HKTB = jnp.ones((1, 4, 2, 1)), jnp.array([1.0, 2.0])[None, None, :, None] * jnp.ones((1, 4, 2, 1))
    y_HKTB = narrow.attend(q_HKTB, k_HKTB, k_HKTB, jnp.array([[0.0, -2.0]]), jnp.zeros(1))
    # The scores of the second query are 4 * 1 / 2 and 4 * 2 / 2 - 2, and 0 is that of the sink.
    share = np.exp(2) / (2 * np.exp(2) + 1)
    np.testing.assert_allclose(y_HKTB[0, 0, :, 0], [1 / 2, share * 1 + share * 2], rtol=1e-6)


def test_bfloat16_keeps_its_type_and_a_softmax_in_float32():
    q_HKTB, k_HKTB, v_HKTB, dy_HKTB = jax.random.normal(jax.random.key(0), (4, 2, 4, 6, 3)).astype(jnp.bfloat16)
    given = q_HKTB, k_HKTB, v_HKTB, jnp.zeros((2, 3)), None
    ours, pull = jax.vjp(narrow.attend, *given)
    found = pull(dy_HKTB)
    assert [x.dtype for x in (ours, *found[:4])] == 4 * [jnp.bfloat16] + [jnp.float32]
    precise = [None if x is None else x.astype(jnp.float32) for x in given]
    np.testing.assert_allclose(ours.astype(jnp.float32), narrow.attend(*precise), atol=0.02)


@pytest.mark.parametrize("others", ("padding", "rows", "later tokens"))
def test_neither_padding_nor_other_rows_nor_later_tokens_change_a_row(others, random_params):
    cfg = config(attention_sink=True)
    params, tokens_BT = random_params(cfg), jax.random.randint(jax.random.key(0), (B, T), 0, 11)
    options = {"lengths_B": jnp.full(B, 11, jnp.int32)} if others == "padding" else {}
    changed_BT = tokens_BT.at[:, 11:].set(5) if others != "rows" else tokens_BT.at[1:].set(3)
    wanted, found = (both(cfg, params, x_BT, **options)[0] for x_BT in (tokens_BT, changed_BT))
    kept = np.s_[:, :11] if others != "rows" else np.s_[:1]
    np.testing.assert_array_equal(wanted[kept], found[kept])


def test_rows_as_long_as_the_window_and_shorter(random_params):
    cfg = config("alibi")
    for length in (2, 4, 5, 6):
        tokens_BT = jax.random.randint(jax.random.key(0), (B, length), 0, 11)
        np.testing.assert_allclose(*both(cfg, random_params(cfg), tokens_BT), atol=2e-5)


@pytest.mark.parametrize(
    ("rows", "tokens", "changes", "served"),
    [
        (8, 2, {}, True),
        (8, 2, {"name": "alibi", "d_model": 48, "window": 8}, True),
        (7, 2, {}, False),
        (8, 1, {}, False),
        (8, 2, {"window": None}, False),
        (8, 2, {"window": 9}, False),
        (8, 2, {"d_model": 51}, False),
        (8, 2, {"name": "rotary", "d_model": 24}, False),
        (8, 2, {"name": "learned"}, False),
        (8, 2, {"similarity": "cosine"}, False),
        (8, 2, {"attention_dropout": 0.1}, False),
    ],
)
def test_which_models_are_read_so(rows, tokens, changes, served):
    assert narrow.serve(config(**changes), rows, tokens, training=True) is served


@pytest.mark.parametrize("method", ("rotate", "perturb", "look", "layer", "mask", "read"))
def test_a_scheme_with_another_way_to_know_positions_is_read_as_a_square(method, monkeypatch):
    monkeypatch.setattr(relative.Scheme, method, lambda *args: None, raising=False)
    assert not narrow.serve(config(), B, T)


def test_positions_with_gaps_are_read_as_a_square(random_params):
    cfg = config()
    positions_BT = jnp.cumsum(jax.random.randint(jax.random.key(1), (B, T), 1, 4), axis=1)
    tokens_BT = jax.random.randint(jax.random.key(0), (B, T), 0, 11)
    np.testing.assert_array_equal(*both(cfg, random_params(cfg), tokens_BT, positions_BT=positions_BT))
