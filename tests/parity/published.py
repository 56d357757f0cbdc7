"""A model of `transformers` beside ours: its logits, and the texts of both."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.decoding.generate import generate

torch = pytest.importorskip("torch", reason="parity needs PyTorch: pip install -e '.[parity]'")
transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install -e '.[parity]'")


def logits_of(theirs, tokens_BT):
    """Its logits as an array (B, T, V)."""
    with torch.no_grad():
        return theirs(torch.tensor(tokens_BT).long()).logits.numpy()


def same_greedy(theirs, params, cfg, tokens_BT, steps, dtype=jnp.float32):
    """The greedy tokens after a prompt (B, steps), which both have written."""
    inputs, (B, T) = torch.tensor(tokens_BT).long(), tokens_BT.shape
    mask = torch.ones_like(inputs)
    expected = theirs.generate(inputs, attention_mask=mask, max_new_tokens=steps, do_sample=False, pad_token_id=0)

    found = greedy(params, model.init_cache(cfg, B, T + steps, dtype), tokens_BT, cfg, steps)
    np.testing.assert_array_equal(found, expected[:, T:].numpy())
    return found


@partial(jax.jit, static_argnames=("cfg", "steps"))
def greedy(params, cache, tokens_BT, cfg, steps):
    """Our greedy tokens (B, steps)."""

    def extend(tokens_BT, cache, lengths_B=None):
        return model.extend(params, tokens_BT, cache, cfg, lengths_B=lengths_B)

    return generate(extend, cache, tokens_BT, np.full(len(tokens_BT), tokens_BT.shape[1], np.int32), steps)
