"""Attention within a window is that of the masked square, in float64: values, all derivatives, caches and exports."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apformer import model
from apformer.layers import attention, window
from tests.helpers.small_models import V, draw_tokens, small

B = 3


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(True):
        yield


def same(found, expected, message=""):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11, err_msg=message)


# `attend`, for keys in order


def in_window(q_BTHK, k_BSHK, v_BSHK, bias_HW, sink_H, mask_BTW):
    return window.attend(q_BTHK, k_BSHK, v_BSHK, mask_BTW, bias_HW[None, :, None], sink_H)[0]


def in_square(q_BTHK, k_BSHK, v_BSHK, bias_HW, sink_H, mask_BTW):
    """The same of `attention.attend`: query t sees the keys t .. t + W - 1."""
    (T, W), S = mask_BTW.shape[1:], k_BSHK.shape[1]
    offset_TS = jnp.arange(S)[None] - jnp.arange(T)[:, None] + T + W - 1 - S
    clipped_TS = jnp.clip(offset_TS, 0, W - 1)
    mask_BTS = mask_BTW[:, jnp.arange(T)[:, None], clipped_TS] & ((offset_TS >= 0) & (offset_TS < W))[None]
    return attention.attend(q_BTHK, k_BSHK, v_BSHK, mask_BTS, bias_HW[None, :, clipped_TS], sink_H)[0]


@partial(jax.jit, static_argnums=0)
def everything(attend, args, tangents, mask_BTW, weights_BTHK):
    """Value, tangent, gradients, and the tangent of the gradients, by all arguments; weights are the cotangent."""

    def run(*args):
        return attend(*args, mask_BTW) * weights_BTHK  # without a sink, what sees nothing has weight 0

    def loss(*args):
        return (run(*args) ** 3).sum()

    numbers = tuple(n for n, arg in enumerate(args) if arg is not None)
    gradient = jax.grad(loss, numbers)
    return jax.jvp(run, args, tangents), jax.jvp(gradient, args, tangents)


CASES = [  # T, W, heads, width of a head, a sink, keys before the first query: narrow windows, then chunks
    (2, 1, 3, 1, False, True),
    (7, 3, 2, 5, True, False),
    (1, 5, 2, 3, True, True),
    (37, 9, 2, 3, False, False),
]


@given(st.sampled_from(CASES), st.integers(0, 99))
def test_attention_in_a_window_is_that_of_the_masked_square(case, seed):
    """With a bias; keys are missing here and there, and all of them for some queries."""
    (T, W, H, K, sunk, goes_on), rng = case, np.random.default_rng(seed)
    S = T + W - 1 if goes_on else T

    def drawn(*shape):
        return rng.standard_normal(shape)

    def args():
        return drawn(B, T, H, K), drawn(B, S, H, K), drawn(B, S, H, K), drawn(H, W), drawn(H) if sunk else None

    exists_BS = rng.random((B, T + W - 1)) < 0.6
    exists_BS[:, : T + W - 1 - S] = False
    mask_BTW = np.stack([exists_BS[:, s : s + T] for s in range(W)], axis=-1)
    seen_BT11 = mask_BTW.any(-1)[:, :, None, None]
    weights_BTHK = drawn(B, T, H, K) * (1 if sunk else seen_BT11)
    given = args(), args(), mask_BTW, weights_BTHK
    ours = everything(in_window, *given)
    same(ours, everything(in_square, *given))
    ((value_BTHK, _), _) = ours
    assert (np.asarray(value_BTHK)[~seen_BT11[..., 0, 0]] == 0).all()  # and finite


@pytest.mark.parametrize("T, W", [(7, 3), (37, 9)])
def test_members_are_what_they_are_alone(T, W):
    """By offset and by chunk."""
    rng = np.random.default_rng(0)
    args_M = tuple(rng.standard_normal((2, *shape)) for shape in 3 * [(B, T, 2, 3)] + [(2, W), (2,)])
    mask_1TW = np.asarray(window.view(T, W).mask_BTS)

    def gradient(attend, *args):
        return jax.grad(lambda *args: (attend(*args, mask_1TW) ** 3).sum(), tuple(range(5)))(*args)

    same(jax.jit(jax.vmap(partial(gradient, in_window)))(*args_M), jax.vmap(partial(gradient, in_square))(*args_M))


# The model


MODEL = {"n_heads": 2, "d_model": 4, "d_ff": 8, "position": "relative", "output_projection": True}
DEFAULT = model.Config(**MODEL, window=3, attention_sink=True, final_norm=True)  # but for its sizes


def apply(params, tokens_BT, cfg, square):
    positions_BT = jnp.arange(tokens_BT.shape[1])[None] if square else None
    return model.apply(params, tokens_BT, cfg, positions_BT=positions_BT)


def loss(params, tokens_BT, square):
    logits_BTV = apply(params, tokens_BT, DEFAULT, square)
    return (logits_BTV**2).mean(), logits_BTV


@partial(jax.jit, static_argnums=3)
def derivatives(params, direction, tokens_BT, square):
    """Loss, logits and gradients, and the tangents of all three: those of the gradients are the Hessian times one."""
    of = jax.value_and_grad(partial(loss, tokens_BT=tokens_BT, square=square), has_aux=True)
    return jax.jvp(of, (params,), (direction,))


@pytest.mark.parametrize("rows", [1, 64])
def test_no_number_of_rows_is_special(rows, random_params):
    """The default model has the logits and derivatives of the masked square."""
    assert window.serves(DEFAULT, 9)
    params, direction = (random_params(DEFAULT, seed, np.float64) for seed in (0, 1))
    given = params, direction, draw_tokens(rows, 9)
    same(derivatives(*given, False), derivatives(*given, True))


@pytest.mark.parametrize("W, pieces", [(5, (7, 1, 9, 2)), (40, (165, 1, 2, 170))])
def test_cached_is_uncached_for_pieces_longer_than_the_window(W, pieces, random_params):
    """Both of apply's ways; a narrow window by offset, a wide one by chunk."""
    cfg = small(position="relative", window=W, attention_sink=True, final_norm=True)
    params, T = random_params(cfg, dtype=np.float64), sum(pieces)
    assert window.serves(cfg, T) and window.serves(cfg, pieces[0]) and not window.serves(cfg, 1)
    tokens_BT, cache = draw_tokens(B, T), model.init_cache(cfg, B, T)
    extend = jax.jit(model.extend, static_argnames="cfg")
    found = []
    for chunk_BT in np.split(tokens_BT, np.cumsum(pieces)[:-1], axis=1):
        logits_BTV, cache = extend(params, chunk_BT, cache, cfg)
        found.append(logits_BTV)
    for square in (False, True):
        whole = jax.jit(apply, static_argnums=(2, 3))(params, tokens_BT, cfg, square)
        same(np.concatenate(found, axis=1), whole, f"square: {square}")


@pytest.mark.parametrize("W, T", [(5, 13), (10, 130)])
def test_padding_and_other_rows_change_nothing(W, T, random_params):
    """Bit for bit. By offset and by chunk; not even the padding's own logits feel what stands there."""
    cfg, lengths_B = small(position="relative", window=W), np.array([T, 3, 0], np.int32)
    assert window.serves(cfg, T)
    params, tokens_BT = random_params(cfg, dtype=np.float64), draw_tokens(B, T)
    run = jax.jit(lambda tokens_BT, lengths_B: model.apply(params, tokens_BT, cfg, lengths_B=lengths_B))
    logits_BTV = np.asarray(run(tokens_BT, lengths_B))
    garbage_BT = np.where(np.arange(T)[None] < lengths_B[:, None], tokens_BT, V + 7).astype(np.int32)
    np.testing.assert_array_equal(run(garbage_BT, lengths_B), logits_BTV)
    others_BT = np.concatenate([draw_tokens(1, T, 1), tokens_BT[1:]])
    np.testing.assert_array_equal(np.asarray(run(others_BT, lengths_B))[1:], logits_BTV[1:])
    np.testing.assert_array_equal(np.asarray(run(tokens_BT, np.full(B, T, np.int32)))[1, :3], logits_BTV[1, :3])


@pytest.mark.parametrize("W, shape, T", [(5, "b, t", 11), (10, "b, 130", 130)])
def test_it_can_be_exported_for_any_number_of_rows_and_tokens(W, shape, T, random_params):
    """A length that is no number takes the masked square, and a wide head takes any number of rows."""
    cfg = small(position="relative", window=W, d_model=384, vocab_size=128, tie_embeddings=True)
    params = random_params(cfg, dtype=np.float64)
    tokens_BT = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), jnp.int32)
    assert window.serves(cfg, tokens_BT.shape[1]) == ("t" not in shape)
    exported = jax.export.export(jax.jit(partial(model.apply, cfg=cfg)))(params, tokens_BT)
    exported.serialize(vjp_order=1)
    for rows in (1, 2):
        tokens_BT = draw_tokens(rows, T)
        same(exported.call(params, tokens_BT), apply(params, tokens_BT, cfg, True))
