"""What 64-bit numbers allow to be stated sharply: no function drops to float32 on the way."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from apformer import model
from apformer.layers.position import sinusoidal
from apformer.loss import cross_entropy
from tests import test_seq2seq
from tests.helpers.small_models import SCHEMES, V, close, draw_tokens, small

pytestmark = pytest.mark.parity

B, T = 3, 7


@pytest.mark.parametrize("k", [-7, 1, 500])
def test_a_shift_is_one_linear_map_of_the_encoding_at_every_position(k):
    positions = np.arange(7, 1000)
    here, there = (np.asarray(sinusoidal.encode(p[None], 22, jnp.float64))[0] for p in (positions, positions + k))
    matrix = np.zeros((22, 22))
    for i in range(0, 22, 2):
        angle = k / 10_000 ** (i / 22)
        matrix[i : i + 2, i : i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    np.testing.assert_allclose(there, here @ matrix.T, atol=1e-12)


@pytest.mark.parametrize("scheme, window", [(scheme, (None, 5)[i % 2]) for i, scheme in enumerate(SCHEMES)])
def test_the_cache_gives_the_logits_of_the_whole(scheme, window, random_params):
    cfg = small(position=scheme, window=window, final_norm=True)
    params = random_params(cfg, dtype=np.float64)
    tokens = draw_tokens(B, T)
    lengths = np.array([7, 2, 6], np.int32)
    whole = jax.jit(model.apply, static_argnames="cfg")(params, tokens, cfg, lengths_B=lengths)
    extend = jax.jit(model.extend, static_argnames="cfg")
    cache = model.init_cache(cfg, B, T, jnp.float64)
    assert whole.dtype == jnp.float64
    for t in range(T):
        logits, cache = extend(params, tokens[:, t : t + 1], cache, cfg, lengths_B=(lengths > t).astype(np.int32))
        assert logits.dtype == jnp.float64
        np.testing.assert_allclose(logits[t < lengths, 0], whole[t < lengths, t], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("cfg", test_seq2seq.CONFIGS.values(), ids=test_seq2seq.CONFIGS)
def test_the_company_of_a_row_and_its_padding_change_no_logit_of_an_encoder_decoder(cfg):
    for actual, expected in test_seq2seq.in_other_company(test_seq2seq.draw_params(cfg, jnp.float64), cfg):
        assert actual.dtype == jnp.float64
        close(actual, expected, 1e-12)


def test_the_gradient_of_the_loss_is_its_slope():
    """Against finite differences, one logit at a time and in a random direction."""
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((B, T, V)), rng.integers(0, V, (B, T))
    weights = rng.random((B, T)) * (rng.random((B, T)) < 0.7)
    loss = jax.jit(lambda logits: cross_entropy(logits, targets, weights))
    check_grads(loss, (logits,), order=1, modes=["rev"], atol=1e-8, rtol=1e-8)
    gradient, step = np.asarray(jax.grad(loss)(logits)), 1e-5
    for index in itertools.islice(np.ndindex(logits.shape), 0, None, 7):
        moved = np.zeros_like(logits)
        moved[index] = step
        slope = (loss(logits + moved) - loss(logits - moved)) / (2 * step)
        np.testing.assert_allclose(gradient[index], slope, atol=1e-9)
