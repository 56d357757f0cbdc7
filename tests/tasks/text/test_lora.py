"""Low-rank adapters change nothing at first; merged they are W + alpha / r A B, for matrices of the blocks alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.tasks.text import lora
from tests.helpers.small_models import close, draw_tokens, small

L, R = 2, 4
CFG = small(position="learned", attention_bias=True, output_projection=True, attention_sink=True, final_norm=True)
init, merge = jax.jit(lora.init, static_argnums=(2, 3)), jax.jit(lora.merge)


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


def test_they_start_as_nothing_and_make_outputs_as_large_as_inputs(params, fresh, key):
    jax.tree.map(np.testing.assert_array_equal, merge(params, fresh, 4.0), params)
    wide = lora.init(key, {"blocks": {"weight": jnp.zeros((1, 400, 30))}}, 20)["blocks"]["weight"]["A"]
    assert abs(float(wide.std()) * np.sqrt(400) - 1) < 0.05


def test_merged_is_w_plus_the_product(params, fresh):
    rng = np.random.default_rng(3)
    trained = jax.tree.map(lambda leaf: np.asarray(rng.standard_normal(leaf.shape), leaf.dtype), fresh)
    merged = merge(params, trained, 3.0 / R)
    adapted = factors(merged)
    for name, W in adapted.items():
        before, (A, B) = factors(params)[name], (factors(trained)[name][part] for part in "AB")
        for layer in range(L):
            product = A[layer].reshape(-1, R) @ B[layer].reshape(R, -1)
            close(W[layer], np.asarray(before[layer]) + 3.0 / R * product.reshape(W[layer].shape), 1e-6)
    changed = jax.tree.map(lambda ours, theirs: bool((ours != theirs).any()), merged, params)
    assert sum(jax.tree.leaves(changed)) == len(adapted)


def test_gradients_reach_b_first(params, fresh):
    """At B = 0 the gradient of A is nothing and that of B is not: training can begin."""
    tokens = draw_tokens(2, 5)

    @jax.jit
    def gradient(adapter):
        return jax.grad(lambda a: model.apply(lora.merge(params, a, 1.0), tokens, CFG).var())(adapter)

    for name, pair in factors(gradient(fresh)).items():
        assert not pair["A"].any() and pair["B"].any(), name
