"""Positions by the period of the text: read off it, told for every token what it may know, the same at any width."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apformer import model
from apformer.layers import position
from apformer.layers.attention import Config
from apformer.layers.masks import View
from apformer.layers.position import periodic
from apformer.tokenizers.digits import encode
from tests.helpers.small_models import PERIODIC, close, draw_tokens

apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))


def test_the_period_is_known_from_the_first_separator_on():
    tokens_BT = np.stack([encode(text) for text in ("07 10 13", "00700100", "0 1 2 34")])
    positions_BT = jnp.arange(8, dtype=jnp.int32)[None]
    expected = [[0, 0, 3, 3, 3, 3, 3, 3], [0] * 8, [0, 2, 2, 2, 2, 2, 2, 2]]
    np.testing.assert_array_equal(periodic.periods(tokens_BT, positions_BT, 10), expected)


def test_half_precision_has_room_for_what_hides_a_token():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), model.init(jax.random.key(0), PERIODIC[2]))
    assert jnp.isfinite(apply(params, jnp.asarray(encode("07 10 13"))[None], PERIODIC[2])).all()


def test_what_was_known_before_holds():
    tokens_BT = np.array([[1, 10], [1, 10], [1, 2]], np.int32)
    found = periodic.periods(
        tokens_BT, np.full((3, 2), 7, np.int32) + np.arange(2, dtype=np.int32), 10, jnp.array([4, 0, 0])
    )
    np.testing.assert_array_equal(found, [[4, 4], [0, 9], [0, 0]])


@given(length=st.integers(3, 40), near=st.integers(1, 3))
def test_each_offset_has_its_buckets(length, near):
    """Local ones from 0 up, those of the previous term about P, and the span below it; none is in the future."""
    T, P = 12, min(length, 11)
    positions_BT = jnp.arange(T, dtype=jnp.int32)[None]
    known_BT = jnp.where(positions_BT >= P - 1, P, 0)
    buckets_TSQ = np.asarray(periodic.bucketise(positions_BT, positions_BT, known_BT, near))[0]
    for t in range(T):
        for s in range(T):
            offset, known = t - s, t >= P - 1
            expected = [offset == c for c in range(near)]
            expected += [known and offset == P - near + c for c in range(2 * near)] + [
                known and near <= offset < P - near
            ]
            assert buckets_TSQ[t, s].tolist() == [inside and offset >= 0 for inside in expected]


@given(length=st.integers(1, 14), near=st.integers(1, 3))
def test_the_offsets_are_those_of_the_buckets_each_once(length, near):
    T = 14
    positions_BT = jnp.arange(T, dtype=jnp.int32)[None]
    known_BT = jnp.where(positions_BT >= length - 1, length, 0)
    buckets_TSQ = np.asarray(periodic.bucketise(positions_BT, positions_BT, known_BT, near))[0, :, :, :-1]
    offsets_TO = np.asarray(periodic.offsets(known_BT, near))[0]
    for t in range(T):
        found = [t - offset for offset in offsets_TO[t] if 0 <= offset <= t]
        assert sorted(found) == np.flatnonzero(buckets_TSQ[t].any(-1)).tolist()


def test_heads_that_do_not_see_the_span_never_read_it(random_params):
    """Whatever the scores: their weight is 0, in a softmax and in shares."""
    cfg = PERIODIC[2]
    tokens_BT = np.tile(encode("00000 " * 3), (2, 1))
    _, captured = apply(random_params(cfg), tokens_BT, cfg, capture=("attention",))
    weights_LHS = np.asarray(captured["attention"])[:, 0, :, -1]  # of the last separator: P = 6, k = 2
    offset_S = np.arange(17, -1, -1)
    between_S = (2 <= offset_S) & (offset_S < 4)
    assert (weights_LHS[:, 1:, between_S] == 0).all() and (weights_LHS[:, :1, between_S] > 0).all()
    assert (weights_LHS[:, :, offset_S > 7] == 0).all() and (weights_LHS.sum(-1) <= 1 + 1e-6).all()


def test_span_heads_are_noisy_in_training_and_sharper_after_it(random_params):
    """And no other head is, nor they without the two flags."""
    plain, tokens_BT = PERIODIC[2], draw_tokens(3, 13)
    params = random_params(plain)

    def weights(cfg, key=None):
        _, captured = apply(params, tokens_BT, cfg, key=key, capture=("attention",))
        return np.asarray(captured["attention"])[0]  # of the first layer, before heads mix

    sharp, noisy = (
        replace(plain, position_options=replace(plain.position_options, **options))
        for options in ({"logit_scale": 4.0}, {"score_noise": 2.0})
    )
    one, other = (weights(noisy, jax.random.key(seed)) for seed in (0, 1))
    for changed in (weights(sharp), one, other):
        np.testing.assert_allclose(changed[:, 1:], weights(plain)[:, 1:], rtol=1e-5, atol=1e-7)
        assert abs(changed[:, 0] - weights(plain)[:, 0]).max() > 0.1
    assert abs(one - other).max() > 0.1
    share, sharper = (weights(cfg)[:, 0, 0, 0] for cfg in (plain, sharp))  # the first token sees itself alone
    np.testing.assert_allclose(np.log(sharper / (1 - sharper)), 4 * np.log(share / (1 - share)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(weights(noisy), weights(plain), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(weights(sharp, jax.random.key(0)), weights(plain), rtol=1e-5, atol=1e-7)


def test_a_training_pass_wants_a_key_only_where_it_differs_from_others():
    plain = PERIODIC[2]
    assert not model.wants_key(plain)
    for option in ({"logit_scale": 4.0}, {"score_noise": 2.0}):
        options = replace(plain.position_options, **option)
        assert model.wants_key(replace(plain, position_options=options))
        assert not model.wants_key(replace(plain, position_options=replace(options, span_heads=0)))


def test_each_head_starts_with_a_bucket_of_its_own():
    """The span heads start with none; 6 others with 6 descriptions, the first with the second."""
    bias = position.Bias(periodic.Scheme(near=2, span_heads=2), Config(8))
    view = View(None, found=jnp.zeros((1, 1, 1, 7), bool))
    params = bias.init(jax.random.key(0), view, jnp.float32)["params"]
    assert (np.asarray(params["table"])[:2] < 0).all() and params["level"].tolist() == [0, 0]
    assert np.asarray(params["table"])[2:].argmax(1).tolist() == [1, 2, 3, 4, 5, 0]


def test_more_digits_in_the_span_change_nothing_to_heads_that_do_not_see_it(random_params):
    """Zeros put into every term, below the digits that are near: the last logits are those of the narrow terms."""
    cfg = PERIODIC[0]
    narrow, wide = (encode(text)[None] for text in ("217 437 6", "21777 43777 6"))
    params = random_params(cfg)
    close(apply(params, wide, cfg)[:, -1], apply(params, narrow, cfg)[:, -1], 1e-5)
    other = apply(params, encode("21777 53777 6")[None], cfg)
    assert np.abs(np.asarray(other - apply(params, wide, cfg))[:, -1]).max() > 1e-3


def test_positions_may_begin_anywhere(random_params):
    cfg = PERIODIC[2]
    params, tokens_BT = random_params(cfg), draw_tokens(3, 13)
    positions_BT = np.arange(13, dtype=np.int32)[None] + np.array([[5], [0], [70]], np.int32)
    close(apply(params, tokens_BT, cfg, positions_BT=positions_BT), apply(params, tokens_BT, cfg), 1e-5)
