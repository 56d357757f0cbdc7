"""RNN, GRU and LSTM: what a logit may depend on, the cache, the tree of parameters; tests/parity has the equations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apformer import recurrent
from tests.helpers.small_models import (
    LONGEST,
    V,
    close,
    draw_params,
    draw_tokens,
    feed,
    names,
    ragged_splits,
    rows_close,
    shapes,
)

B, T = 3, 13
CELLS = ("rnn", "gru", "lstm")

apply = jax.jit(recurrent.apply, static_argnames=("cfg", "capture"))
extend = jax.jit(recurrent.extend, static_argnames="cfg")

every_cell = pytest.mark.parametrize("cell", CELLS)


def small(**changes):
    return recurrent.Config(**{"d_model": 5, "n_layers": 2} | changes)


# What a logit may depend on


@every_cell
def test_the_future_changes_nothing_and_the_past_does(cell):
    """Bit for bit; each row is changed from a place of its own on."""
    cfg = small(cell=cell)
    params = draw_params(cfg)
    for seed in range(5):
        tokens, cuts = draw_tokens(B, T, seed), np.random.default_rng(seed).integers(1, T, B)
        past = np.arange(T)[None] < cuts[:, None]
        logits = np.asarray(apply(params, tokens, cfg))
        changed = np.asarray(apply(params, np.where(past, tokens, (tokens + 1) % V), cfg))
        np.testing.assert_array_equal(changed[past], logits[past])
        assert (changed[~past] != logits[~past]).any(-1).all()


@every_cell
def test_what_stands_beyond_a_rows_length_changes_nothing(cell):
    """Bit for bit, ids outside the vocabulary and the gradient included."""
    cfg = small(cell=cell)
    params, tokens = draw_params(cfg), draw_tokens(B, T)
    lengths = np.array([13, 0, 4], np.int32)
    real = np.arange(T)[None] < lengths[:, None]

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def gradient(params, tokens):
        logits = recurrent.apply(params, tokens, cfg, lengths_B=lengths)
        return jnp.where(real[:, :, None], logits, 0.0).sum(), logits

    (_, logits), gradients = gradient(params, np.where(real, tokens, 0))
    (_, others), other_gradients = gradient(params, np.where(real, tokens, V + 6))
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits, others)
    jax.tree.map(np.testing.assert_array_equal, gradients, other_gradients)
    assert all((np.asarray(leaf) != 0).any() and np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    close(logits[real], np.asarray(apply(params, tokens, cfg))[real], 1e-6)


# The cache


@every_cell
@settings(max_examples=8)
@given(schedule=ragged_splits(B, T, LONGEST), seed=st.integers(0, 100))
def test_any_split_gives_the_logits_of_the_whole(cell, schedule, seed):
    cfg = small(cell=cell)
    params, tokens = draw_params(cfg), draw_tokens(B, T, seed)
    logits, _ = feed(extend, params, tokens, cfg, schedule, recurrent.init_cache(cfg, B, T))
    rows_close(logits, np.asarray(apply(params, tokens, cfg)))


# Dropout and dtypes


def test_dropout_falls_on_embeddings_and_layers_and_not_on_the_state(key):
    """With W = 0 a layer hears nothing of what was dropped below, so its own state is the one without dropout."""
    cfg = small(dropout=0.25, d_model=50)
    params, tokens = draw_params(cfg), draw_tokens(B, T)
    for part in params["cells"].values():
        part["input"]["weight"] *= 0
    _, plain = apply(params, tokens, cfg, capture=("residual",))
    _, dropped = apply(params, tokens, cfg, key=key, capture=("residual",))
    plain, dropped = np.asarray(plain["residual"]), np.asarray(dropped["residual"])
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], plain[kept] / 0.75, rtol=1e-4)
    np.testing.assert_allclose(kept.mean((1, 2, 3)), 0.75, atol=0.03)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        np.testing.assert_allclose((kept[one] & kept[other]).mean(), 0.75**2, atol=0.04)


def test_bfloat16_parameters_give_bfloat16_logits():
    cfg = small()
    params, tokens = draw_params(cfg), draw_tokens(B, T)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    logits, cache = extend(half, tokens, recurrent.init_cache(cfg, B, T, jnp.bfloat16), cfg)
    assert logits.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(cache)} == {jnp.dtype(jnp.bfloat16)}


# Parameters and configuration


def part(name):
    return {
        f"cells/{name}/hidden/weight": (2, 5, 5),
        f"cells/{name}/input/bias": (2, 5),
        f"cells/{name}/input/weight": (2, 5, 5),
    }


ENDS = {"embedding/table": (11, 5), "head/output/bias": (11,), "head/output/weight": (5, 11)}
TREES = {
    "rnn": ENDS | part("candidate"),
    "gru": ENDS
    | part("candidate")
    | part("reset_gate")
    | part("update_gate")
    | {"cells/candidate/hidden/bias": (2, 5)},
    "lstm": ENDS | part("candidate") | part("input_gate") | part("forget_gate") | part("output_gate"),
}


@every_cell
def test_the_tree_of_parameters_is_a_contract_with_every_checkpoint(cell):
    params = shapes(small(cell=cell))
    assert {name: leaf.shape for name, leaf in names(params).items()} == TREES[cell], (
        "The names or shapes of the parameters changed, so checkpoints written before no longer load. If nobody asked "
        "for that, undo it. If it is meant: let checkpoint.py rename the old leaves (or refuse them in one sentence), "
        "say so in CHANGELOG.md, and then write the new tree here."
    )
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))


@every_cell
def test_the_parameters_of_a_fresh_model(cell, key):
    """W differs between keys, layers and parts; U is orthogonal; the forget gate starts open, all other biases at 0."""
    init = jax.jit(recurrent.init, static_argnums=1)
    params, other = (init(k, small(cell=cell)) for k in (key, jax.random.key(1)))
    assert type(params) is dict
    matrices = []
    for name, leaf in names(params["cells"]).items():
        if name.endswith("bias"):
            np.testing.assert_array_equal(leaf, 1 if name.startswith("forget_gate") else 0)
            continue
        matrices += [*np.asarray(leaf), *np.asarray(names(other["cells"])[name])]
        if name.endswith("hidden/weight"):
            for U in np.asarray(leaf):
                np.testing.assert_allclose(U @ U.T, np.eye(5), atol=1e-5)
    assert len({matrix.tobytes() for matrix in matrices}) == len(matrices) == 8 * len(params["cells"])
