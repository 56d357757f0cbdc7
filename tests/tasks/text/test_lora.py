"""Low-rank adapters change nothing at first; merged they are W + alpha / r A B, for matrices of the blocks alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.tasks.text import lora
from tests.helpers.small_models import close, draw_tokens, small

D, H, K, F, L, R = 6, 3, 2, 5, 2, 4
CFG = small(position="learned", attention_bias=True, output_projection=True, attention_sink=True, final_norm=True)
init, merge = jax.jit(lora.init, static_argnums=(2, 3)), jax.jit(lora.merge)
# The shapes of the factors, by hand.
FACTORS = {
    **{name: ((L, D, R), (L, R, H, K)) for name in ("query", "key", "value")},
    "output": ((L, H, K, R), (L, R, D)),
    "expand": ((L, D, R), (L, R, F)),
    "contract": ((L, F, R), (L, R, D)),
}


@pytest.fixture
def params(random_params):
    return random_params(CFG)


@pytest.fixture
def fresh(params, key):
    return init(key, params, R)


def factors(tree):
    """{name of the matrix: its two factors}."""
    attention, feedforward = tree["blocks"]["attention"], tree["blocks"]["feedforward"]
    found = {name: attention[name] for name in ("query", "key", "value", "output")}
    return found | {name: feedforward[name]["weight"] for name in ("expand", "contract")}


def randomised(tree):
    """The same factors, with B drawn as well."""
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(rng.standard_normal(leaf.shape), leaf.dtype)), tree)


def test_the_matrices_of_the_blocks_have_factors_and_nothing_else(fresh):
    shapes = {name: (pair["A"].shape, pair["B"].shape) for name, pair in factors(fresh).items()}
    assert shapes == FACTORS
    assert len(jax.tree.leaves(fresh)) == 2 * len(FACTORS)


def test_attention_alone(params, key):
    """The same factors as among all matrices, since a matrix draws from a key of its own."""
    alone = init(key, params, R, "attention")["blocks"]
    both = init(key, params, R)["blocks"]["attention"]
    for name in ("query", "key", "value"):
        jax.tree.map(np.testing.assert_array_equal, alone["attention"][name], both[name])
    assert len(jax.tree.leaves(alone)) == 2 * 3


def test_they_start_as_nothing_and_are_drawn_each_for_itself(params, fresh, key):
    jax.tree.map(np.testing.assert_array_equal, merge(params, fresh, 4.0), params)
    rows = [np.asarray(pair["A"]) for pair in factors(fresh).values()]
    assert len({row.ravel()[0].item() for row in rows}) == len(rows)
    wide = lora.init(key, {"blocks": {"weight": jnp.zeros((1, 400, 30))}}, 20)["blocks"]["weight"]["A"]
    assert abs(float(wide.std()) * np.sqrt(400) - 1) < 0.05  # so that x A is as large as x


def test_merged_is_w_plus_the_product(params, fresh):
    drawn = randomised(fresh)
    merged = merge(params, drawn, 3.0 / R)
    for name, W in factors(merged).items():
        before, (A, B) = factors(params)[name], (factors(drawn)[name][part] for part in "AB")
        for layer in range(L):
            A_IR, B_RO = np.asarray(A[layer]).reshape(-1, R), np.asarray(B[layer]).reshape(R, -1)
            product = (A_IR @ B_RO).reshape(W[layer].shape)
            close(W[layer], np.asarray(before[layer]) + 3.0 / R * product, 1e-6)
    unadapted = jax.tree.map(lambda W, pair: W if pair is None else jnp.zeros(()), params, drawn, is_leaf=jnp.isscalar)
    for path, leaf in jax.tree_util.tree_leaves_with_path(unadapted):
        if leaf.shape:
            np.testing.assert_array_equal(leaf, _at(merged, path), err_msg=str(path))


def _at(tree, path):
    for entry in path:
        tree = tree[entry.key]
    return tree


def test_gradients_reach_b_first(params, fresh):
    """At B = 0 the gradient of A is nothing and that of B is not: training can begin."""
    tokens = draw_tokens(2, 5)

    @jax.jit
    def gradient(adapter):
        return jax.grad(lambda a: model.apply(lora.merge(params, a, 1.0), tokens, CFG).var())(adapter)

    for name, pair in factors(gradient(fresh)).items():
        assert not pair["A"].any() and pair["B"].any(), name
