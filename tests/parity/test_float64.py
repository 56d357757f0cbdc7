"""What 64-bit numbers allow to be stated sharply: the company of a row changes nothing."""

import jax.numpy as jnp
import pytest

from tests import test_seq2seq
from tests.helpers.small_models import close, draw_params

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("cfg", test_seq2seq.CONFIGS.values(), ids=test_seq2seq.CONFIGS)
def test_the_company_of_a_row_and_its_padding_change_no_logit_of_an_encoder_decoder(cfg):
    for actual, expected in test_seq2seq.in_other_company(draw_params(cfg, dtype=jnp.float64), cfg):
        assert actual.dtype == jnp.float64
        close(actual, expected, 1e-12)
