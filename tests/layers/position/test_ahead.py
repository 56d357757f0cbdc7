"""Positions ahead: what is read at each layer, by the definition in words, and one key that is taken, as it decides."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model
from apformer.analysis import ablate
from apformer.layers.position import ahead
from apformer.tokenizers.digits import encode
from tests.helpers.small_models import AHEAD, close

apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))


def attention(params, text, cfg=AHEAD, key=None):
    """Weights (L, H, T, S) of a text."""
    _, captured = apply(params, encode(text)[None], cfg, key=key, capture=("attention",))
    return np.asarray(captured["attention"])[:, 0]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_each_layer_reads_its_offsets(width, random_params):
    text, P = "".join(f"{n % 10**width:0{width}d} " for n in (12345, 30817, 49289)), width + 1
    weights_LHTS = attention(random_params(AHEAD), text)[:, :-1]  # all heads but the last
    for layer, offsets in enumerate([(0, P), (0, 1), (P - 2,)]):
        for t in range(len(text)):
            known = t >= P - 1
            expected = {o for o in (offsets if known else [(0,), (0, 1), (0,)][layer]) if o <= t}
            read = {t - s for s in np.flatnonzero(weights_LHTS[layer, :, t].max(0) > 0)}
            assert read == expected, (layer, t)
    assert (weights_LHTS[2].max(-1) == 1).all()  # one key has all the weight, whatever the query


def test_the_last_head_takes_the_first_key_that_decides_in_the_last_layer(random_params):
    """Against a loop over the keys: states before the last layer are captured, normed, and their first number read."""
    params, text = lively(random_params), "31415 92653 58979 "
    weights_LTS, decides_T = attention(params, text)[:, -1], decides(params, text)
    assert (weights_LTS[:2] == 0).all()
    assert (decides_T > 0).any() and (decides_T < 0).any()
    for t in range(len(text)):
        span = [s for s in range(max(0, t - 3), t + 1) if t >= 5 and decides_T[s] > 0]  # P - 3 = 3
        expected_S = np.zeros(len(text))
        expected_S[span[:1]] = 1
        np.testing.assert_array_equal(weights_LTS[2, t], expected_S)


def test_the_last_head_adds_nothing_once_it_is_switched_off(random_params):
    """A value of 0 is a bit to it: what says nothing is a key that does not decide."""
    params, tokens_BT = lively(random_params), jnp.asarray(encode("31415 92653 58979 "))[None]
    output = params["blocks"]["attention"]["output"]  # (L, H, K, D)
    silent = params["blocks"]["attention"] | {"output": output.at[2, -1].set(0.0)}
    expected = apply(params | {"blocks": params["blocks"] | {"attention": silent}}, tokens_BT, AHEAD)
    found = apply(ablate.ablate(params, [("head", 2, AHEAD.n_heads - 1)]), tokens_BT, AHEAD)
    np.testing.assert_array_equal(found, expected)
    assert (found != apply(params, tokens_BT, AHEAD)).any()


@pytest.mark.parametrize("T", [1, 4])
def test_the_first_key_that_decides_is_found_in_a_ring_of_slots(T):
    """Against a loop, in rows of 3, 7 and 24 tokens and a cache of 7."""
    rng, S, newest_B = np.random.default_rng(0), 7, np.array([2, 6, 23])
    slot_BS = np.broadcast_to(np.arange(S), (3, S))
    cached_BS = newest_B[:, None] - (newest_B[:, None] - slot_BS) % S
    cached_BS = np.where(cached_BS < 0, -1, cached_BS)
    for _ in range(50):
        decides_BS, says_BS = (rng.normal(size=(3, S)) - shift for shift in (0.5, 0.0))
        decides_BS = np.where(cached_BS < 0, 0.0, decides_BS)  # as a cache begins
        t_BT = newest_B[:, None] - np.arange(T)[::-1]
        from_BT = np.where(rng.random((3, T)) < 0.2, ahead._NEVER, t_BT - rng.integers(-1, 3, (3, T)))
        expected_BT = np.zeros((3, T))
        for b, t in np.ndindex(3, T):
            span = [p for p in range(max(0, from_BT[b, t]), t_BT[b, t] + 1) if decides_BS[b, p % S] > 0]
            expected_BT[b, t] = np.sign(says_BS[b, span[0] % S]) if span else 0
        found_BT = ahead.bit_ahead(*map(jnp.asarray, (decides_BS, says_BS, cached_BS, from_BT, t_BT)))
        np.testing.assert_array_equal(found_BT, expected_BT)


def test_a_long_term_read_with_a_cache_gives_what_the_equation_says(random_params):
    """At once, and the last tokens one by one; the keys that are taken stand at many distances."""
    params, text = lively(random_params), "271828182845904 314159265358979 141421356237309 "
    tokens_BT, P = jnp.asarray(encode(text))[None], 16
    whole_TV, extend = apply(params, tokens_BT, AHEAD)[0], jax.jit(model.extend, static_argnames="cfg")
    at_once_BTV, _ = extend(params, tokens_BT, model.init_cache(AHEAD, 1, 48), AHEAD)
    close(at_once_BTV[0], whole_TV, 1e-5)
    _, cache = extend(params, tokens_BT[:, :35], model.init_cache(AHEAD, 1, P + 35), AHEAD)
    for t in range(35, 48):
        logits_BTV, cache = extend(params, tokens_BT[:, t : t + 1], cache, AHEAD)
        close(logits_BTV[0, 0], whole_TV[t], 1e-5)
    weights_TS = attention(params, text)[2, -1]
    assert len({t - s for t, s in np.argwhere(weights_TS)}) > 5


def decides(params, text):
    """The first number of each token's key for the last head of the last layer."""
    _, captured = apply(params, encode(text)[None], AHEAD, capture=("residual",))
    norm, heads = (
        jax.tree.map(lambda leaf: leaf[2], params["blocks"][name]) for name in ("attention_norm", "attention")
    )
    x_TD = captured["residual"][2, 0]
    n_TD = (x_TD - x_TD.mean(1, keepdims=True)) / jnp.sqrt(x_TD.var(1, keepdims=True) + AHEAD.norm_epsilon)
    return np.asarray((n_TD * norm["scale"][None] + norm["bias"][None]) @ heads["key"][:, -1, 0])


def lively(random_params):
    """Random parameters of which some keys decide and some do not: larger ones, and a bias that takes the mean away."""
    params = random_params(AHEAD)
    params = params | {"blocks": jax.tree.map(lambda leaf: 4 * leaf, params["blocks"])}
    key_D, norm = params["blocks"]["attention"]["key"][2, :, -1, 0], params["blocks"]["attention_norm"]
    mean = decides(params, "31415 92653 58979 ").mean()
    bias_LD = norm["bias"].at[2].add(-mean * key_D / jnp.square(key_D).sum())
    return params | {"blocks": params["blocks"] | {"attention_norm": norm | {"bias": bias_LD}}}


def test_training_is_soft_and_noisy(random_params):
    params, text = random_params(AHEAD), "31415 92653 58979 "
    noisy = replace(AHEAD, position_options=ahead.Scheme(score_noise=2.0))
    soft, one, other = (
        attention(params, text, cfg, jax.random.key(seed))[2, -1] for cfg, seed in ((AHEAD, 0), (noisy, 0), (noisy, 1))
    )
    assert ((soft > 0) & (soft < 1)).any() and (soft.sum(-1) < 1 + 1e-6).all()
    assert abs(one - other).max() > 0.01 and abs(one - soft).max() > 0.01
    np.testing.assert_array_equal(attention(params, text), attention(params, text, noisy))
    assert model.wants_key(AHEAD)


def test_the_bit_alone_is_read(random_params):
    """What a key ahead is beside its bit does not matter to the last token's logits; which bit it is does."""
    params = lively(random_params)
    logits = {text: np.asarray(apply(params, encode(text)[None], AHEAD)[0, -1]) for text in map(wide, range(100))}
    assert len({tuple(np.round(logits_V, 3)) for logits_V in logits.values()}) in (2, 3)


def wide(number):
    """Terms alike in the two highest places, of which the last token reads the state."""
    return f"27{number:02d} 81{(7 * number) % 100:02d} "


def test_a_text_that_begins_with_a_space_reads_no_future(random_params):
    """P is 1 there, and P - 2 less than 0."""
    params, texts = random_params(AHEAD), (" 31415926", " 31415935")
    one, other = (np.asarray(apply(params, encode(text)[None], AHEAD)[0]) for text in texts)
    np.testing.assert_array_equal(one[:7], other[:7])


def test_what_does_not_go_with_it_is_refused():
    for change, named in (
        ({"n_layers": 2}, "^n_layers 2 is not 3"),
        ({"n_heads": 1}, "^n_heads 1 is less than 2"),
        ({"window": 9}, "^window 9 hides tokens"),
    ):
        with pytest.raises(ValueError, match=named):
            replace(AHEAD, **change)
    with pytest.raises(ValueError, match="^score_noise nan is no finite number"):
        ahead.Scheme(score_noise=jnp.nan)
