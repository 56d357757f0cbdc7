"""Dropout, captures, dtypes and compilation leave the decoder what it is."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model, recurrent, seq2seq
from apformer.runs import recipes
from tests.helpers.own_process import python
from tests.helpers.small_models import apply, close, draw_tokens, small

B, T = 7, 13

# Dropout


def test_dropout(random_params, key):
    """Off without a key; with one, the key decides."""
    cfg = small(dropout=0.25, n_layers=5)
    params, tokens = random_params(cfg), draw_tokens(B, T)

    def run(cfg, key):
        logits, captured = apply(params, tokens, cfg, key=key, capture=("residual",))
        return np.asarray(logits), np.asarray(captured["residual"][0])

    plain, embedding = run(cfg, None)
    dropped, dropped_embedding = run(cfg, key)
    np.testing.assert_array_equal(run(cfg, key)[0], dropped)
    assert (run(cfg, jax.random.key(1))[0] != dropped).any(-1).all()
    assert (dropped != plain).any(-1).all()
    np.testing.assert_array_equal(run(small(n_layers=5), key)[0], plain)
    # A coordinate is 0, or divided by the share that is kept, so that its mean stays.
    kept = dropped_embedding != 0
    np.testing.assert_allclose(dropped_embedding[kept], embedding[kept] / 0.75, rtol=1e-6)
    np.testing.assert_allclose(kept.mean(), 0.75, atol=0.06)


# Looking inside


def test_capture(random_params):
    n_layers = 5
    cfg = small(n_layers=n_layers, position="rotary", scale_embedding=True, window=5, output_projection=True)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    logits, captured = apply(params, tokens, cfg, capture=("attention", "residual"))
    close(logits, apply(params, tokens, cfg), 1e-6)
    assert captured["attention"].shape == (n_layers, B, 3, T, T)
    assert captured["residual"].shape == (n_layers + 1, B, T, 6)
    attention = np.asarray(captured["attention"])
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    offsets = np.arange(T)[:, None] - np.arange(T)[None]
    assert (attention[..., (offsets < 0) | (offsets >= 5)] == 0).all()
    embedding = np.asarray(params["embedding"]["table"])[tokens] * np.sqrt(6)
    np.testing.assert_allclose(captured["residual"][0], embedding, rtol=1e-6)
    _, seen = apply(params, tokens, cfg, capture=("query", "key", "value", "scores", "feedforward", "attention"))
    close(seen["scores"], jnp.einsum("LBTHK,LBSHK->LBHTS", seen["query"], seen["key"]) / np.sqrt(2), 1e-5)
    mixed_LBTHK = jnp.einsum("LBHTS,LBSHK->LBTHK", seen["attention"], seen["value"])
    attended_LBTD = jnp.einsum("LBTHK,LHKD->LBTD", mixed_LBTHK, params["blocks"]["attention"]["output"])
    contract = params["blocks"]["feedforward"]["contract"]
    written_LBTD = jnp.einsum("LBTF,LFD->LBTD", seen["feedforward"], contract["weight"])
    written_LBTD += contract["bias"][:, None, None]
    close(captured["residual"][:-1] + attended_LBTD + written_LBTD, captured["residual"][1:], 1e-4)
    _, alone = apply(params, tokens, cfg, capture=("residual",))  # which does not take the masked square
    assert list(alone) == ["residual"]
    close(alone["residual"], captured["residual"], 1e-6)


@pytest.mark.parametrize("position", ["rotary", "relative"])
def test_bfloat16_parameters_give_bfloat16_logits(position, random_params):
    cfg = small(position=position, n_layers=1)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    half = apply(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params), tokens, cfg)
    assert half.dtype == jnp.bfloat16
    logits = np.asarray(apply(params, tokens, cfg))
    error = np.asarray(half, np.float32) - logits
    assert np.sqrt(np.square(error).mean()) < 0.05 * np.sqrt(np.square(logits).mean())


def test_learned_positions_end(random_params):
    cfg = small(position="learned", max_len=T - 1)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    with pytest.raises(ValueError, match="max_len 12"):
        model.apply(params, tokens, cfg)
    assert np.isfinite(apply(params, tokens[:, 1:], cfg)).all()


def test_rematerialised_blocks_have_the_same_gradients_and_take_less_memory(random_params, key):
    cfg = small(dropout=0.25, n_layers=3, d_ff=211)  # three blocks are straight code without it, and a loop with it
    params, tokens = random_params(cfg), draw_tokens(3, 29)

    def gradient(remat):
        logits = lambda params: model.apply(params, tokens, cfg, key=key, remat=remat)  # noqa: E731
        return jax.jit(jax.grad(lambda params: logits(params).var())).lower(params).compile()

    kept, anew = gradient(False), gradient(True)
    jax.tree.map(partial(close, relative=1e-5), anew(params), kept(params))
    assert anew.memory_analysis().temp_size_in_bytes < 0.8 * kept.memory_analysis().temp_size_in_bytes


# What is no sketch, no name and no row of tokens


def test_the_first_sketch_is_its_formulas(random_params):
    """Z = LN(X), Q = Z W_q, K = Z W_k, V = Z W_v, no residuals: logits = FFN(attention) W_out + b, in plain numpy."""
    flags = "--recipe sketch --n_layers 1 --d_model 6 --no_residual --no_feedforward_norm".split()
    cfg = recipes.parse(flags).model
    assert cfg == model.Config(d_model=6, residual=False, feedforward_norm=False, embedding_std=1.0)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    block = jax.tree.map(lambda leaf: leaf[0], p["blocks"])
    assert set(block) == {"attention", "attention_norm", "feedforward"}
    angles_TI = np.arange(T)[:, None] / 10_000 ** (np.arange(0, 6, 2) / 6)[None]
    x_BTD = p["embedding"]["table"][tokens] + np.stack([np.sin(angles_TI), np.cos(angles_TI)], -1).reshape(T, 6)
    z_BTD = (x_BTD - x_BTD.mean(-1, keepdims=True)) / np.sqrt(x_BTD.var(-1, keepdims=True) + 1e-5)
    z_BTD = z_BTD * block["attention_norm"]["scale"] + block["attention_norm"]["bias"]
    q, k, v = (z_BTD @ block["attention"][name][:, 0] for name in ("query", "key", "value"))
    exponentials = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(6)) * np.tri(T)
    y_BTD = exponentials / exponentials.sum(-1, keepdims=True) @ v
    expand, contract = block["feedforward"]["expand"], block["feedforward"]["contract"]
    y_BTD = np.maximum(y_BTD @ expand["weight"] + expand["bias"], 0) @ contract["weight"] + contract["bias"]
    expected = y_BTD @ p["head"]["output"]["weight"] + p["head"]["output"]["bias"]
    close(apply(params, tokens, cfg), expected, 1e-5)


@pytest.mark.parametrize(
    "tokens, named", [([1], "a list"), (np.zeros((1, 3)), r"of .* float64"), (np.arange(3), r"of shape \(3,\)")]
)
def test_tokens_that_are_no_rows_are_refused_in_a_sentence(tokens, named):
    for name, call in (
        ("tokens_BT", lambda: model.apply({}, tokens, small())),
        ("tokens_BT", lambda: model.extend({}, tokens, {}, small())),
        ("tokens_BT", lambda: recurrent.apply({}, tokens, recurrent.Config())),
        ("source_BS", lambda: seq2seq.encode({}, tokens, seq2seq.Config())),
    ):
        with pytest.raises(ValueError, match=f"{name} is {named}.*: give integers \\(rows, tokens\\)"):
            call()


TEXTBOOK = {"attention", "block", "cache", "config", "embedding", "feedforward", "masks", "norm", "position"}


def test_importing_the_model_loads_the_textbook_alone():
    """No window, no cross-attention, no roles of parameters, no position scheme that is not used."""
    code = "import apformer.model, sys; print(*(name for name in sys.modules if name.startswith('apformer.')))"
    layers = {f"apformer.layers.{name}" for name in TEXTBOOK}
    assert {*python("-c", code).stdout.split()} == {"apformer.layers", "apformer.model"} | layers


def test_an_unknown_name_to_capture_is_refused_in_a_sentence():
    tokens = draw_tokens(B, T)
    with pytest.raises(ValueError, match="^capture 'feedforward' is none of attention, residual, query, "):
        model.apply({}, tokens, small(feedforward=False), capture=("attention", "feedforward"))
    with pytest.raises(ValueError, match="^capture 'attention' is none of residual: "):
        recurrent.apply({}, tokens, recurrent.Config(), capture=("attention",))
    with pytest.raises(
        ValueError, match="^capture 'attention' is none of encoder_attention, encoder_residual, decoder_"
    ):
        seq2seq.apply({}, tokens, tokens, seq2seq.Config(), capture=("attention",))
