"""The logit lens and patches of the residual stream, against the model itself."""

import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.analysis import lens
from tests.helpers.small_models import draw_tokens, small


def test_the_last_reading_of_the_lens_is_the_model(random_params):
    cfg, tokens_BT = small(n_layers=3, final_norm=True), draw_tokens(2, 5)
    params = random_params(cfg)
    logits_LBTV = lens.lens(params, tokens_BT, cfg)
    assert logits_LBTV.shape == (4, 2, 5, cfg.vocab_size)
    np.testing.assert_allclose(logits_LBTV[-1], model.apply(params, tokens_BT, cfg), atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_patch_of_the_whole_stream_makes_the_model_answer_as_on_the_other_tokens(layer, random_params):
    """And one of a single position leaves the logits before it as they were."""
    cfg, (ours_BT, theirs_BT) = small(n_layers=2, position="relative"), draw_tokens(2, 5)[:, None]
    params = random_params(cfg)
    expected, seen = model.apply(params, theirs_BT, cfg, capture=("residual",))
    found = lens.patch(params, ours_BT, cfg, layer, lambda _: seen["residual"][layer])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    ours = model.apply(params, ours_BT, cfg)
    edit = lambda x_BTD: x_BTD.at[:, 3].set(seen["residual"][layer][:, 3])  # noqa: E731
    found = lens.patch(params, ours_BT, cfg, layer, edit)
    np.testing.assert_allclose(found[:, :3], ours[:, :3], atol=1e-5)
    assert jnp.abs(found[:, 3] - ours[:, 3]).max() > 1e-3
