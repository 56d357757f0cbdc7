"""A sequence fed through the cache in any pieces gives the logits of the sequence fed whole."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apformer import model
from tests.helpers import small_models
from tests.helpers.small_models import (
    LONGEST,
    SCHEMES,
    apply,
    close,
    draw_tokens,
    extend,
    ragged_splits,
    rows_close,
    small,
)

B, T = 3, 13

feed = partial(small_models.feed, extend)

ALL = np.full(B, LONGEST, np.int32)


def configs():
    """Every position scheme; the window, the place of the norm, the sink and the depth go along by turns."""
    windows = [*zip(SCHEMES, itertools.cycle((None, 5)), strict=False), ("relative", 5)]
    return [
        small(
            position=position,
            window=window,
            attention_sink=i % 3 == 0,
            norm_position=("pre", "post")[i // 2 % 2],
            n_layers=1 + i % 2,
        )
        for i, (position, window) in enumerate(windows)
    ]


every_config = pytest.mark.parametrize(
    "cfg", configs(), ids=lambda cfg: f"{cfg.position}-{cfg.window}-{cfg.norm_position}"
)


@every_config
@settings(max_examples=8)
@given(schedule=ragged_splits(B, T, LONGEST), seed=st.integers(0, 100))
@example(schedule=[[7, 2, 5]] + 6 * [[1, 1, 1]], seed=0)  # a prefill, then single steps
def test_any_split_gives_the_logits_of_the_whole(cfg, schedule, seed, random_params):
    """Rows of different lengths are each what they are alone."""
    params, tokens = random_params(cfg), draw_tokens(B, T, seed)
    logits, cache = feed(model.unstack(params), tokens, cfg, schedule, model.init_cache(cfg, B, T))
    rows_close(logits, np.asarray(apply(params, tokens, cfg)))
    np.testing.assert_array_equal(cache["length"], np.sum(schedule, 0))


def test_a_window_goes_on_beyond_the_length_of_the_cache(random_params):
    """A ring of `window` slots serves rows of any length."""
    cfg = small(position="rotary", window=5)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    logits, _ = feed(params, tokens, cfg, [[7] * B] + 6 * [[1] * B], model.init_cache(cfg, B, 5))
    close(np.stack(logits), apply(params, tokens, cfg), 1e-5)


def test_more_tokens_than_a_cache_without_a_window_holds_are_refused(random_params):
    cfg = small()
    with pytest.raises(ValueError, match="7 tokens .* 6"):
        model.extend(random_params(cfg), draw_tokens(B, T)[:, :LONGEST], model.init_cache(cfg, B, 6), cfg)


def test_a_cache_can_be_given_away(random_params):
    """Its leaves share no memory, so that a generation loop may donate it. Wide matrices are read transposed."""
    cfg = small(position="rotary", d_model=384, d_ff=128)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    donating = jax.jit(model.extend, static_argnames="cfg", donate_argnames="cache")
    logits, _ = donating(model.unstack(params), tokens[:, :1], model.init_cache(cfg, B, T), cfg)
    close(logits, apply(params, tokens, cfg)[:, :1], 1e-5)


def test_a_cache_in_bfloat16(random_params):
    cfg = small(position="rotary", window=5)
    params, tokens = random_params(cfg), draw_tokens(B, T)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    cache = model.init_cache(cfg, B, T, jnp.bfloat16)
    logits, after = extend(half, tokens[:, :LONGEST], cache, cfg, lengths_B=ALL)
    assert logits.dtype == jnp.bfloat16
    assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [leaf.dtype for leaf in jax.tree.leaves(cache)]
