"""An accelerator computes what the CPU beside it does: `pytest -m gpu tests/machine`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.decoding.generate import generate
from apformer.loss import cross_entropy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() == "cpu", reason="there is no accelerator here"),
]

CFG = model.Config(
    vocab_size=32, d_model=64, n_heads=4, n_layers=2, position="rotary", final_norm=True, output_projection=True
)


def on_both(function, *arrays):
    """The results of a function on the accelerator, with full products, and on the CPU: two lists of arrays."""
    found = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        with jax.default_matmul_precision("highest"):
            found.append(jax.tree.leaves(jax.device_get(jax.jit(function)(*jax.device_put(arrays, device)))))
    return found


def rows(B=4, T=48):
    return jax.random.randint(jax.random.key(1), (B, T), 0, CFG.vocab_size)


def loss(params, tokens_BT, cfg=CFG):
    logits_BTV = model.apply(params, tokens_BT[:, :-1], cfg)
    return cross_entropy(logits_BTV.astype(jnp.float32), tokens_BT[:, 1:], jnp.ones(tokens_BT[:, 1:].shape))


@pytest.mark.parametrize("window", [None, 8])
def test_loss_and_gradient_equal_those_of_the_cpu(window):
    cfg = model.Config(**vars(CFG) | {"window": window})
    params = model.init(jax.random.key(0), cfg)
    there, here = on_both(jax.value_and_grad(partial(loss, cfg=cfg)), params, rows())
    for one, other in zip(there, here, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_generation_with_a_cache_equals_the_cpu():
    params, prompt_BT = model.init(jax.random.key(0), CFG), rows(T=8)

    def write(params, prompt_BT):
        def extend(tokens_BT, cache, lengths_B=None):
            return model.extend(params, tokens_BT, cache, CFG, lengths_B=lengths_B)

        return generate(extend, model.init_cache(CFG, 4, 24), prompt_BT, jnp.full(4, 8), 16)

    there, here = on_both(write, params, prompt_BT)
    np.testing.assert_array_equal(there[0], here[0])
