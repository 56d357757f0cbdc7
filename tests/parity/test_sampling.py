"""The logits that a token is drawn from, as `transformers` makes them while it generates."""

import jax
import numpy as np
import pytest

from apformer.decoding.generate import Sampling, scores
from tests.parity.published import torch, transformers

pytestmark = pytest.mark.parity

B, T, V = 3, 9, 53


def filtered(logits_BV, row_BT, **numbers):
    """What a token is drawn from after a row."""
    seen_BV = (row_BT[:, :, None] == np.arange(V)).any(1)
    return jax.jit(scores)(logits_BV, Sampling(**numbers), seen_BV)


def same(ours_BV, theirs_BV, atol):
    """The same tokens are left, with the same logits but for a number that is added to each row."""
    np.testing.assert_allclose(ours_BV, theirs_BV - theirs_BV.max(-1, keepdims=True), rtol=0, atol=atol)


@pytest.mark.parametrize("seed", range(4))
def test_in_float64_all_are_the_processors_of_transformers(seed):
    rng = np.random.default_rng(seed)
    logits_BV, row_BT = rng.normal(0, 3, (B, V)), rng.integers(0, V, (B, T)).astype(np.int32)
    temperature, top_p, min_p, penalty = rng.uniform((0.2, 0.1, 0.01, 0.5), (3, 0.99, 0.5, 2)).tolist()
    top_k = int(rng.integers(1, V + 9))
    processors = transformers.LogitsProcessorList(
        [
            transformers.RepetitionPenaltyLogitsProcessor(penalty),
            transformers.TemperatureLogitsWarper(temperature),
            transformers.TopKLogitsWarper(top_k),
            transformers.TopPLogitsWarper(top_p),
            transformers.MinPLogitsWarper(min_p),
        ]
    )
    theirs_BV = processors(torch.tensor(row_BT).long(), torch.tensor(logits_BV)).numpy()

    numbers = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition_penalty": penalty}
    same(filtered(logits_BV, row_BT, temperature=temperature, **numbers), theirs_BV, 1e-12)
