"""Rows that are continued piece by piece, with a small cache, are those that one call of `generate` continues."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.decoding import pieces
from apformer.decoding.bind import bind
from apformer.decoding.generate import generate, pad_prompts
from apformer.layers.position import periodic
from apformer.tokenizers.digits import encode
from tests.helpers.small_models import AHEAD, PERIODIC, small

PROMPTS = [encode(text) for text in ("70 01 31", "7 8 9", "00001 00002 00003 00004 00005 0", "12345678")]
NEAR_TWO = replace(PERIODIC[0], position_options=periodic.Scheme(near=2), weighting="geometric", attention_sink=False)


@pytest.mark.parametrize(
    "cfg, slots",
    [(PERIODIC[0], 8 + 4), (NEAR_TWO, 8 + 4), (AHEAD, 6 + 4), (PERIODIC[2], 64), (small(position="alibi"), 64)],
)
def test_pieces_and_a_small_cache_change_nothing(cfg, slots, random_params, monkeypatch):
    """Periods are up to 6, and near = 2 reads one token more; a row has up to 49 tokens."""
    bound = bind(model, random_params(cfg), cfg)
    prompt_BT, lengths_B = pad_prompts(PROMPTS)
    whole_BN = jax.jit(generate, static_argnums=4)(bound.extend, bound.init_cache(4, 64), prompt_BT, lengths_B, 18)
    told = []
    monkeypatch.setattr(pieces, "PIECE", 4)
    np.testing.assert_array_equal(pieces.proceed(bound, PROMPTS, 18, slots, told.append), whole_BN)
    assert sum(told) == max(map(len, PROMPTS)) + 17  # the first new token comes with the prompt


def test_a_key_that_is_no_longer_in_the_cache_is_not_read(random_params):
    """A cache that is too small for the period leaves out the term before, and reads no wrong token instead."""
    cfg, tokens_BT = PERIODIC[0], jnp.asarray(encode("12345 12345 1"))[None]
    params, extend = random_params(cfg), jax.jit(partial(model.extend, cfg=cfg))

    def last(slots, tokens_BT, cache=None):
        cache = model.init_cache(cfg, 1, slots)
        for t in range(tokens_BT.shape[1]):
            logits_BTV, cache = extend(params, tokens_BT[:, t : t + 1], cache)
        return logits_BTV[0, 0]

    other_BT = tokens_BT.at[:, -6].set(9)  # P - 1 and P back are the tokens -6 and -7
    assert not np.allclose(last(7, tokens_BT), last(7, other_BT))
    np.testing.assert_array_equal(last(5, tokens_BT), last(5, other_BT))


def test_powers_of_two():
    assert [pieces.power_of_two(n) for n in (1, 2, 3, 4, 5, 1025)] == [1, 2, 4, 4, 8, 2048]
