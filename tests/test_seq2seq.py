"""The encoder-decoder: the company a row is in, the cache, and the tree of parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import seq2seq
from tests.helpers.small_models import LONGEST, close, draw_params, feed, names, shapes
from tests.properties.test_parameters import BLOCK

B, S, T, V, U = 3, 7, 5, 11, 13  # U: vocabulary of the source
SOURCE_LENGTHS, TARGET_LENGTHS = np.array([7, 1, 4], np.int32), np.array([2, 5, 0], np.int32)
REAL_SOURCE, REAL_TARGET = np.arange(S)[None] < SOURCE_LENGTHS[:, None], np.arange(T)[None] < TARGET_LENGTHS[:, None]


def small(**changes):
    """A configuration whose model compiles and runs in an instant."""
    sizes = {"source_vocab_size": U, "target_vocab_size": V, "d_model": 6, "n_heads": 3, "d_ff": 5, "max_len": 17}
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 1, "share_embeddings": False, "tie_embeddings": False}
    return seq2seq.Config(**sizes | layers | changes)


CONFIGS = {
    "published": small(n_decoder_layers=2, tie_embeddings=True),
    "pre-norm, learned": small(norm_position="pre", final_norm=True, position="learned", attention_bias=True),
    "rotary": small(position="rotary", norm_position="pre", final_norm=True, n_decoder_layers=2),
    "cosine": small(similarity="cosine", n_encoder_layers=1),
    "additive, shared": small(similarity="additive", source_vocab_size=V, share_embeddings=True, n_encoder_layers=1),
}
every_config = pytest.mark.parametrize("cfg", CONFIGS.values(), ids=CONFIGS)

apply = jax.jit(seq2seq.apply, static_argnames=("cfg", "capture"))
extend = jax.jit(seq2seq.extend, static_argnames="cfg")
init_cache = jax.jit(seq2seq.init_cache, static_argnames=("cfg", "length"))


def draw_tokens(cfg, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.integers(0, cfg.source_vocab_size, (B, S)).astype(np.int32)
    return source, rng.integers(0, V, (B, T)).astype(np.int32)


def padded(params, source, target, cfg, source_lengths=SOURCE_LENGTHS, target_lengths=TARGET_LENGTHS):
    lengths = {"source_lengths_B": source_lengths, "target_lengths_B": target_lengths}
    return np.asarray(apply(params, source, target, cfg, **lengths))


@every_config
def test_every_real_token_of_the_source_is_felt_by_every_target_token(cfg):
    params, (source, target) = draw_params(cfg), draw_tokens(cfg)
    logits = padded(params, source, target, cfg)
    for s in (0, 3, 6):
        changed = source.copy()
        changed[:, s] = (changed[:, s] + 1) % cfg.source_vocab_size
        differs = (padded(params, changed, target, cfg) != logits).any(-1)
        np.testing.assert_array_equal(differs, np.broadcast_to(REAL_SOURCE[:, s : s + 1], (B, T)))


def in_other_company(params, cfg):
    """[(logits of rows, those of the same rows in another batch)]: alone, unpadded; and among others, padded more."""
    source, target = draw_tokens(cfg)
    logits = padded(params, source, target, cfg)
    alone = apply(params, source[2:, :4], target[2:], cfg, target_lengths_B=TARGET_LENGTHS[2:])
    order = np.array([2, 0, 1])
    rng = np.random.default_rng(2)
    more = 4

    def mixed(tokens, vocab_size, width):
        wide = rng.integers(0, vocab_size, (B + more, width)).astype(np.int32)
        wide[order, : tokens.shape[1]] = tokens
        return wide

    lengths = rng.integers(0, T + 1, (2, B + more)).astype(np.int32)
    lengths[:, order] = SOURCE_LENGTHS, TARGET_LENGTHS
    wide = mixed(source, cfg.source_vocab_size, S + 4), mixed(target, V, T + 2)
    among = padded(params, *wide, cfg, *lengths)[order, :T]
    return [(alone, logits[2:]), (among[REAL_TARGET], logits[REAL_TARGET])]


@every_config
def test_the_cache_gives_the_logits_of_the_whole(cfg):
    """Prefilled in part, rows of different lengths, then token by token, with garbage where a row has none."""
    params, (source, target) = draw_params(cfg), draw_tokens(cfg)
    whole = padded(params, source, target, cfg, target_lengths=np.full(B, T, np.int32))
    cache = init_cache(params, source, cfg, T + LONGEST, SOURCE_LENGTHS)
    assert all(leaf.shape[0] == B for leaf in jax.tree.leaves(cache))
    schedule = [2, 0, 1], [1, 2, 2], [0, 1, 2], [2, 2, 0]
    logits, cache = feed(extend, params, target, cfg, schedule, cache)
    close(np.stack(logits), whole, 1e-5)
    np.testing.assert_array_equal(cache["length"], [T] * B)


def test_what_can_be_captured():
    cfg = small(n_encoder_layers=2, n_decoder_layers=5)
    params, (source, target) = draw_params(cfg), draw_tokens(cfg)
    capture = ("encoder_attention", "decoder_attention", "cross_attention", "encoder_residual", "decoder_residual")
    logits, captured = apply(params, source, target, cfg, source_lengths_B=SOURCE_LENGTHS, capture=capture)
    assert {name: leaf.shape for name, leaf in captured.items()} == {
        "encoder_attention": (2, B, 3, S, S),
        "decoder_attention": (5, B, 3, T, T),
        "cross_attention": (5, B, 3, T, S),
        "encoder_residual": (3, B, S, 6),
        "decoder_residual": (6, B, T, 6),
    }
    assert (np.asarray(captured["cross_attention"]).transpose(1, 4, 0, 2, 3)[~REAL_SOURCE] == 0).all()
    np.testing.assert_allclose(captured["cross_attention"].sum(-1), 1, atol=1e-6)
    close(logits, apply(params, source, target, cfg, source_lengths_B=SOURCE_LENGTHS), 1e-6)


def test_dropout_needs_a_key_and_follows_it(key):
    cfg = small(dropout=0.5)
    params, (source, target) = draw_params(cfg), draw_tokens(cfg)
    dropped = [apply(params, source, target, cfg, key=k) for k in (key, key, jax.random.key(1))]
    np.testing.assert_array_equal(dropped[0], dropped[1])
    assert (dropped[0] != dropped[2]).any() and (dropped[0] != apply(params, source, target, cfg)).any()


def test_the_base_model_of_the_paper():
    """63 million parameters with 37,000 tokens, where the paper says 65; without the table 44 million."""
    cfg = seq2seq.Config()
    attention, norm, feedforward = 4 * 512 * 512, 2 * 512, 2 * 512 * 2048 + 2048 + 512
    blocks = 6 * (attention + feedforward + 2 * norm) + 6 * (2 * attention + feedforward + 3 * norm)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes(cfg))) == blocks + 37_000 * 512 == 63_045_632
    assert (cfg.norm_position, cfg.position, cfg.activation, cfg.dropout) == ("post", "sinusoidal", "relu", 0.1)
    assert (cfg.attention_bias, cfg.final_norm, cfg.scale_embedding) == (False, False, True)


SIDE = {name: (1, *shape[1:]) for name, shape in BLOCK.items() if name.startswith("blocks")}
SIDE["blocks/attention/output"] = (1, 3, 2, 6)
CROSS = {
    name.replace("attention", "cross_attention"): shape for name, shape in SIDE.items() if "blocks/attention" in name
}
ENCODER = {f"encoder/{name}": shape for name, shape in SIDE.items()} | {"encoder/embedding/table": (U, 6)}
DECODER = {f"decoder/{name}": shape for name, shape in (SIDE | CROSS).items()}


@pytest.mark.parametrize(
    "changes, others",
    [
        ({}, {"decoder/embedding/table": (V, 6), "head/output/weight": (6, V)}),
        ({"tie_embeddings": True}, {"decoder/embedding/table": (V, 6)}),
        ({"share_embeddings": True, "target_vocab_size": U, "tie_embeddings": True}, {}),
    ],
)
def test_the_tree_of_parameters_is_a_contract_with_every_checkpoint(changes, others):
    cfg = small(n_encoder_layers=1, **changes)
    leaves = names(shapes(cfg))
    assert {name: leaf.shape for name, leaf in leaves.items()} == ENCODER | DECODER | others
    assert all(leaf.dtype == jnp.float32 for leaf in leaves.values())


def test_computes_in_the_dtype_of_the_parameters():
    cfg = CONFIGS["cosine"]
    params, (source, target) = draw_params(cfg, dtype=jnp.bfloat16), draw_tokens(cfg)
    assert apply(params, source, target, cfg).dtype == jnp.bfloat16
    cache = init_cache(params, source, cfg, T + 1)
    logits, after = extend(params, target[:, :2], cache, cfg)
    assert logits.dtype == jnp.bfloat16
    assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [leaf.dtype for leaf in jax.tree.leaves(cache)]


def test_what_does_not_fit_is_refused():
    cfg = small(position="learned", max_len=6)
    params, (source, target) = draw_params(cfg), draw_tokens(cfg)
    with pytest.raises(ValueError, match="7 tokens, .* 6"):
        seq2seq.apply(params, source, target, cfg)
    cache = seq2seq.init_cache(params, source[:, :6], cfg, 4)
    with pytest.raises(ValueError, match="5 tokens do not fit a cache of 4"):
        seq2seq.extend(params, target, cache, cfg)
