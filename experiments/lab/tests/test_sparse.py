"""The decoder that reads a few tokens at known places: which ones, with a cache and without, alone and by members."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer.layers.leaves import role
from apformer_lab import ahead, places, sparse

SMALL = {"d_model": 6, "n_heads": 3, "d_ff": 5}
COLUMNS = sparse.Config(20, separator=16, heading=2, attention_sink=True, **SMALL)
PLAIN = sparse.Config(attention_sink=True, **SMALL)
AHEAD = sparse.Config(pattern="ahead", n_layers=3, **SMALL)
FIXED = sparse.Config(
    pattern="fixed_offsets", offsets=(0, 3, 7), n_layers=1, similarity="none", norm="none", final_norm=False,
    tie_embeddings=True, output_projection=False, attention_sink=True, **SMALL,
)  # fmt: skip
NAMED = sparse.Config(pattern="fixed_offsets", offsets=(0, 1, 2), heading=1, **SMALL)
CONFIGS = {"columns": COLUMNS, "no heading": PLAIN, "ahead": AHEAD, "fixed": FIXED, "named": NAMED}
each = pytest.mark.parametrize("cfg", CONFIGS.values(), ids=CONFIGS)
T = 23
apply = jax.jit(sparse.apply, static_argnames=("cfg", "capture"))
extend = jax.jit(sparse.extend, static_argnames="cfg")


def text(cfg, periods, length=T, seed=0):
    """Rows of random digits, each of a period of its own."""
    rng, head = np.random.default_rng(seed), cfg.heading or 0
    tokens_BT = rng.integers(0, 10, (len(periods), length)).astype(np.int32)
    for tokens_T, P in zip(tokens_BT, periods, strict=True):
        tokens_T[head + P if head else P - 1 :: P] = cfg.separator
        tokens_T[head : head + 1] = cfg.separator if head else tokens_T[:1]
    return tokens_BT


def definition(cfg, tokens_T):
    """{layer: [which positions each token reads]}, by the definition in words."""
    head, first = cfg.heading or 0, cfg.heading + 1 if cfg.heading else 0
    found = {}
    for layer in range(cfg.n_layers):
        found[layer] = []
        for t in range(len(tokens_T)):
            ends = [s + 1 - first for s in range(first, t + 1) if tokens_T[s] == cfg.separator]
            P, names = (ends[0] if ends else None), {*range(head)} & {*range(t)}
            if cfg.pattern == "fixed_offsets":
                read = {t - o for o in cfg.offsets if t - o >= head} | {t} | names
            elif cfg.pattern == "columns":
                back = () if P is None else ((P, P + 1), (P - 1,))[layer]
                read = {t} | {t - o for o in back if t - o >= head} | (names if layer == 0 else set())
            else:
                one = t - max(0, P - 2) if P else t
                read = ({t} | ({t - P} if P and t >= P else set()), {t, max(0, t - 1)}, {one})[layer]
            found[layer].append(read)
    return found


@each
@pytest.mark.parametrize("period", [2, 5])
def test_each_layer_reads_the_tokens_of_its_pattern(cfg, period, random_params):
    tokens_BT = text(cfg, [period])
    _, captured = apply(random_params(cfg), tokens_BT, cfg, capture=("attention",))
    weights_LHTS = np.asarray(captured["attention"])[:, 0]
    for layer, expected in definition(cfg, tokens_BT[0]).items():
        for t in range(T):
            assert {*np.flatnonzero(weights_LHTS[layer, :, t].max(0) > 0).tolist()} == expected[t], (layer, t)


@each
def test_no_logit_depends_on_a_later_token(cfg, random_params):
    params, tokens_BT = random_params(cfg), text(cfg, [4, 6])
    other_BT = tokens_BT.copy()
    other_BT[:, 12:] = text(cfg, [3, 2], seed=1)[:, 12:]
    np.testing.assert_array_equal(apply(params, tokens_BT, cfg)[:, :12], apply(params, other_BT, cfg)[:, :12])


@each
def test_a_cache_in_pieces_and_steps_says_the_same(cfg, random_params, same_in_pieces):
    """Prefill of rows of different lengths, a piece of which a row has none, and single steps."""
    params, tokens_BT = random_params(cfg), text(cfg, [2, 5, 4])
    cache, schedule = sparse.init_cache(cfg, 3, T + 4), [[7, 9, 3], [0, 2, 6], *[[1, 1, 1]] * 4]
    whole_BTV = apply(params, tokens_BT, cfg)
    same_in_pieces(extend, params, tokens_BT, cfg, cache, whole_BTV, schedule, rtol=1e-4, atol=2e-5)


def test_long_rows_are_gathered_and_short_ones_multiplied(random_params):
    params, tokens_BT = random_params(COLUMNS), text(COLUMNS, [5], length=places.SHORT + 20)
    few = places.SHORT - 4
    short, long = apply(params, tokens_BT[:, :few], COLUMNS), apply(params, tokens_BT, COLUMNS)
    np.testing.assert_allclose(short, long[:, :few], rtol=1e-4, atol=1e-5)


def test_the_first_key_that_decides_is_heard_at_any_distance():
    """By its definition: among the keys from `from` to the token itself, the first above 0; its sign."""
    rng = np.random.default_rng(0)
    k_BSHK, v_BSHK, y_BTHK = (jnp.asarray(rng.standard_normal((40, 11, 2, 3)), jnp.float32) for _ in range(3))
    k_BSHK = k_BSHK.at[..., 0].add(-0.8)  # few decide
    positions_BT = jnp.broadcast_to(jnp.arange(11, dtype=jnp.int32)[None], (40, 11))
    from_BT = positions_BT - jnp.asarray(rng.integers(0, 8, (40, 11)), jnp.int32)
    found = ahead.look(y_BTHK, k_BSHK, v_BSHK, from_BT=from_BT, positions_BT=positions_BT, key=None, noise=0.0)
    for b in range(40):
        for t in range(11):
            deciding = [s for s in range(max(0, from_BT[b, t]), t + 1) if k_BSHK[b, s, -1, 0] > 0]
            said = np.sign(v_BSHK[b, deciding[0], -1, 0]) if deciding else 0.0
            assert found[b, t, -1].tolist() == [said, 0.0, 0.0]
    np.testing.assert_array_equal(found[:, :, 0], y_BTHK[:, :, 0])
    one = ahead.look(
        y_BTHK[:, 10:], k_BSHK, v_BSHK, from_BT=from_BT[:, 10:], positions_BT=positions_BT[:, 10:], key=None, noise=0.0
    )
    np.testing.assert_array_equal(one, found[:, 10:])


def test_a_share_of_what_is_left_sums_to_at_most_one():
    scores_B1S = np.random.default_rng(0).standard_normal((3, 1, 7)).astype(np.float32)
    seen_BTS = np.arange(7)[None, None] >= np.arange(5)[None, :, None] * np.ones((3, 1, 1), int)
    share_BTS = np.asarray(ahead.geometric(scores_B1S, seen_BTS))
    assert (share_BTS[~seen_BTS] == 0).all() and (share_BTS.sum(-1) <= 1).all()
    p = 1 / (1 + np.exp(-scores_B1S[0, 0].astype(np.float64)))
    np.testing.assert_allclose(share_BTS[0, 4, 4:], [p[4], (1 - p[4]) * p[5], (1 - p[4]) * (1 - p[5]) * p[6]], 1e-5)


@each
def test_every_parameter_has_a_role_and_biases_of_scores_do_not_decay(cfg):
    shapes = jax.eval_shape(lambda key: sparse.init(key, cfg), jax.random.key(0))
    for path, _ in jax.tree_util.tree_leaves_with_path(shapes):
        assert role(path).decays == (path[-1].key not in ("bias", "sink", "scale"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_layers": 3}, "n_layers 3 is not 2, for which pattern columns has places"),
        ({"pattern": "rows"}, "pattern rows is none of"),
        ({"offsets": (1, 2)}, "offsets .1, 2. are not 0 and then other whole numbers"),
        ({"offsets": (0, 2, 2)}, "each given once"),
        ({"heading": 0}, "heading 0 is not a whole number"),
        ({"score_noise": -1.0}, "score_noise -1.0 is not a finite number"),
        ({"n_heads": 4}, "d_model 6 is not a multiple of n_heads 4"),
    ],
)
def test_a_config_that_cannot_be_names_the_field(change, said):
    with pytest.raises(ValueError, match=said):
        replace(PLAIN, **change)


def test_tokens_that_are_no_rows_or_too_many_are_refused(random_params):
    params = random_params(PLAIN)
    with pytest.raises(ValueError, match="tokens_BT is of shape"):
        sparse.apply(params, np.zeros(3, np.int32), PLAIN)
    with pytest.raises(ValueError, match="9 tokens do not fit a cache of 8"):
        sparse.extend(params, np.zeros((1, 9), np.int32), sparse.init_cache(PLAIN, 1, 8), PLAIN)
    assert sparse.reach(FIXED) == 7 and sparse.reach(PLAIN) is None and sparse.max_tokens(PLAIN) is None
