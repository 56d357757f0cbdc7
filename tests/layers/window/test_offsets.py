"""Attention offset by offset is that of the masked square, whatever a cache holds and however rows are cut."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.layers.position import relative
from apformer.layers.window import offsets

T = 19
SCHEMES = ("none", "alibi", "relative")


def config(name="relative", **changes):
    shape = {"d_model": 12, "n_heads": 3, "n_layers": 2, "d_ff": 8, "window": 5, "output_projection": True}
    return model.Config(position=name, **shape | changes)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("sink", (False, True))
def test_logits_are_those_of_a_pass_without_a_cache(name, sink, random_params):
    cfg = config(name, attention_sink=sink)
    params, tokens_BT = random_params(cfg), jax.random.randint(jax.random.key(0), (4, T), 0, 11)
    wanted = jax.jit(partial(model.apply, cfg=cfg))(params, tokens_BT)
    # Rows are read in pieces of unequal length, shorter and longer than the window, and some pieces are empty.
    pieces = np.array([[3, 2, 0, 1], [0, 6, 9, 0], [4, 0, 2, 8], [12, 11, 8, 10]])
    extend = jax.jit(partial(model.extend, cfg=cfg))
    cache, read_B = model.init_cache(cfg, 4, T), np.zeros(4, int)
    for lengths_B in pieces:
        piece_BT = np.full((4, max(lengths_B)), 7)
        for row, (start, length) in enumerate(zip(read_B, lengths_B, strict=True)):
            piece_BT[row, :length] = tokens_BT[row, start : start + length]
        logits_BTV, cache = extend(params, jnp.asarray(piece_BT), cache, lengths_B=jnp.asarray(lengths_B, jnp.int32))
        for row, (start, length) in enumerate(zip(read_B, lengths_B, strict=True)):
            np.testing.assert_allclose(logits_BTV[row, :length], wanted[row, start : start + length], atol=2e-5)
        read_B += lengths_B
    assert (read_B == T).all()


def test_a_row_shorter_than_the_window_fits_as_few_slots(random_params):
    cfg = config()
    params, tokens_BT = random_params(cfg), jnp.array([[1, 2, 3]])
    logits_BTV, cache = model.extend(params, tokens_BT[:, :2], model.init_cache(cfg, 1, 3), cfg)
    last_B1V, _ = model.extend(params, tokens_BT[:, 2:], cache, cfg)
    ours = np.concatenate([logits_BTV, last_B1V], axis=1)
    np.testing.assert_allclose(ours, model.apply(params, tokens_BT, cfg), atol=2e-5)


def test_one_head_by_hand():
    q_BTHK, k_BSHK = jnp.ones((1, 2, 1, 4)), jnp.arange(3.0)[None, :, None, None] * jnp.ones((1, 3, 1, 4))
    mask_BTS = jnp.array([[[False, True], [True, True]]])
    y_BTHK = offsets.attend(q_BTHK, k_BSHK, k_BSHK, mask_BTS, jnp.array([0.0, -2.0])[None, None, None], jnp.zeros(1))
    # The scores of the second query are 4 * 1 / 2 and 4 * 2 / 2 - 2, and 0 is that of the sink.
    share = np.exp(2) / (2 * np.exp(2) + 1)
    np.testing.assert_allclose(y_BTHK[0, :, 0, 0], [1 / 2, share * 1 + share * 2], rtol=1e-6)


@pytest.mark.parametrize(
    ("tokens", "changes", "served"),
    [
        (2, {}, True),
        (2, {"name": "alibi"}, True),
        (1, {}, False),
        (2, {"window": None}, False),
        (2, {"window": 17}, False),
        (2, {"d_model": 51}, False),
        (2, {"name": "rotary", "d_model": 24}, False),
        (2, {"name": "learned"}, False),
        (2, {"similarity": "cosine"}, False),
    ],
)
def test_which_models_are_read_so(tokens, changes, served):
    assert offsets.serve(config(**changes), tokens) is served


@pytest.mark.parametrize("method", ("rotate", "perturb", "look", "layer", "mask", "read"))
def test_a_scheme_with_another_way_to_know_positions_is_read_as_a_square(method, monkeypatch):
    assert offsets.serve(config(), 2)
    monkeypatch.setattr(relative.Scheme, method, lambda *args: None, raising=False)
    assert not offsets.serve(config(), 2)


@pytest.mark.parametrize("name", SCHEMES)
def test_gradients_are_those_of_the_square(name, random_params, monkeypatch):
    cfg = config(name, attention_sink=True)
    params, tokens_BT = random_params(cfg), jax.random.randint(jax.random.key(0), (3, T), 0, 11)

    def loss(params):
        return jnp.square(model.extend(params, tokens_BT, model.init_cache(cfg, 3, T), cfg)[0]).mean()

    ours = jax.jit(jax.grad(loss))(params)
    monkeypatch.setattr(offsets, "serve", lambda cfg, T: False)
    theirs = jax.jit(jax.grad(lambda params: loss(params)))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, theirs)
