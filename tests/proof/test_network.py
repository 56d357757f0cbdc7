"""The network of numpy is that of the library."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import model
from apformer.analysis.certificate import stored
from apformer.model import reach
from apformer.proof import network
from apformer.tasks.progressions.proof import contexts

LAYERS = model.Config(
    d_model=16,
    n_heads=2,
    n_layers=2,
    d_ff=24,
    position="relative",
    window=5,
    output_projection=True,
    attention_sink=True,
    final_norm=True,
)
BARE = replace(
    LAYERS,
    similarity="dot",
    output_projection=False,
    attention_sink=False,
    final_norm=False,
    norm="none",
    tie_embeddings=True,
)


@pytest.mark.parametrize("small", [LAYERS, BARE, replace(BARE, head_bias=False)], ids=["whole", "bare", "no bias"])
def test_it_computes_what_apply_computes(random_params, small):
    """Strings that begin a row and strings within one; float32 differs from float64 by rounding alone."""
    params, seen = random_params(small), reach(small)
    weights = stored(params)
    cfg = {name: getattr(small, name) for name in small.__dataclass_fields__}
    assert {name: array.shape for name, array in weights.items()} == network.shapes(cfg, contexts)
    tokens_BT = np.random.default_rng(0).integers(0, 11, (40, 14))
    theirs_BTV = jax.jit(lambda params, tokens_BT: model.apply(params, tokens_BT, small))(params, tokens_BT)
    before_BT = np.concatenate([np.full((40, seen), network.radix(cfg) - 1), tokens_BT], axis=1)
    codes_BT = sum(before_BT[:, seen - back : seen - back + 14] * 12**back for back in range(seen + 1))
    codes_N, inverse_BT = np.unique(codes_BT, return_inverse=True)
    ours_NV = network.logits(codes_N, network.complete(weights, cfg, contexts), cfg, contexts)
    np.testing.assert_allclose(ours_NV[inverse_BT.reshape(40, 14)], theirs_BTV, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize(
    "change",
    [{"n_layers": 10**9}, {"window": 10**12}, {"window": None}, {"position": "sinusoidal"}, {"vocab_size": 20}],
)
def test_a_model_that_reads_too_far_is_refused_before_anything_is_made(change):
    cfg = vars(LAYERS)
    assert contexts.fault({}, cfg) is None is network.beyond(cfg, contexts)
    assert contexts.fault({}, cfg | change) is not None


@pytest.mark.parametrize("change", [{"activation": "gelu"}, {"norm_position": "post"}, {"similarity": "cosine"}])
def test_what_is_not_computed_is_refused(change):
    assert network.beyond(vars(LAYERS) | change, contexts) is not None


@pytest.mark.parametrize("numbers", [[], [[3]], [[5, 3], [3, -1]]])
def test_distinct_numbers_come_in_order(numbers):
    numbers = np.array(numbers, np.int64)
    assert network.distinct(numbers).tolist() == np.unique(numbers).tolist()
