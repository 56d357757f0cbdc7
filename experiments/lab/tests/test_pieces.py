"""Rows that are continued piece by piece, with a small cache, are those that one call of `generate` continues."""

import jax
import numpy as np
import pytest

from apformer import model
from apformer.decoding.bind import bind
from apformer.decoding.generate import generate, pad_prompts
from apformer.tokenizers.digits import encode
from apformer_lab import pieces

PROMPTS = [encode(text) for text in ("70 01 31", "7 8 9", "00001 00002 00003 00004 00005 0", "12345678")]
SMALL = {"d_model": 6, "n_heads": 2, "d_ff": 4}


@pytest.mark.parametrize(
    ("cfg", "slots"),
    [(model.Config(position="relative", window=6, **SMALL), 6), (model.Config(position="alibi", **SMALL), 64)],
    ids=["window", "alibi"],
)
def test_pieces_and_a_small_cache_change_nothing(cfg, slots, random_params, monkeypatch):
    """A row has up to 49 tokens."""
    bound = bind(model, random_params(cfg, kind=model), cfg)
    prompt_BT, lengths_B = pad_prompts(PROMPTS)
    whole_BN = jax.jit(generate, static_argnums=4)(bound.extend, bound.init_cache(4, 64), prompt_BT, lengths_B, 18)
    told = []
    monkeypatch.setattr(pieces, "PIECE", 4)
    np.testing.assert_array_equal(pieces.proceed(bound, PROMPTS, 18, slots, told.append), whole_BN)
    assert sum(told) == max(map(len, PROMPTS)) + 17  # the first new token comes with the prompt


def test_powers_of_two():
    assert [pieces.power_of_two(n) for n in (1, 2, 3, 4, 5, 1025)] == [1, 2, 4, 4, 8, 2048]
