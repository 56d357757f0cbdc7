"""What 64-bit numbers allow to be stated sharply: no function drops to float32 on the way."""

import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers.position import sinusoidal
from tests import test_seq2seq
from tests.helpers.small_models import close

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


@pytest.mark.parametrize("cfg", test_seq2seq.CONFIGS.values(), ids=test_seq2seq.CONFIGS)
def test_the_company_of_a_row_and_its_padding_change_no_logit_of_an_encoder_decoder(cfg):
    for actual, expected in test_seq2seq.in_other_company(test_seq2seq.draw_params(cfg, jnp.float64), cfg):
        assert actual.dtype == jnp.float64
        close(actual, expected, 1e-12)
