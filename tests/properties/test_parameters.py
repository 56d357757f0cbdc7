"""The configuration a model starts from, and the tree of parameters that every checkpoint holds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apformer import model, recurrent, seq2seq, word2vec
from apformer.layers.position import fire
from tests.helpers.small_models import V, names, shapes, small


def test_the_default_config_is_the_sketch():
    """One pre-norm block, one head, E[ids] unscaled, sinusoidal positions, Q, K, V without bias and no projection after
    them, ReLU, no final norm, logits = X W_out + b, no dropout."""
    assert dataclasses.asdict(model.Config()) == {
        "vocab_size": 11,
        "d_model": 64,
        "n_heads": 1,
        "n_layers": 1,
        "d_ff": None,
        "max_len": 1024,
        "window": None,
        "position": "sinusoidal",
        "position_options": {},
        "similarity": "scaled_dot",
        "scale_embedding": False,
        "embedding_std": None,
        "tie_embeddings": False,
        "attention_bias": False,
        "output_projection": False,
        "attention_sink": False,
        "activation": "relu",
        "feedforward": True,
        "feedforward_norm": True,
        "norm": "layer",
        "norm_position": "pre",
        "residual": True,
        "norm_epsilon": 1e-5,
        "final_norm": False,
        "head_bias": True,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }


BLOCK = {
    "blocks/attention/key": (2, 6, 3, 2),
    "blocks/attention/query": (2, 6, 3, 2),
    "blocks/attention/value": (2, 6, 3, 2),
    "blocks/attention_norm/bias": (2, 6),
    "blocks/attention_norm/scale": (2, 6),
    "blocks/feedforward/contract/bias": (2, 6),
    "blocks/feedforward/contract/weight": (2, 5, 6),
    "blocks/feedforward/expand/bias": (2, 5),
    "blocks/feedforward/expand/weight": (2, 6, 5),
    "blocks/feedforward_norm/bias": (2, 6),
    "blocks/feedforward_norm/scale": (2, 6),
    "embedding/table": (11, 6),
}
HEAD = {"head/output/bias": (11,), "head/output/weight": (6, 11)}


def without(word):
    return {name: shape for name, shape in (BLOCK | HEAD).items() if word not in name}


GPT2 = small(
    position="learned",
    tie_embeddings=True,
    attention_bias=True,
    output_projection=True,
    activation="gelu_tanh",
    final_norm=True,
    head_bias=False,
)
GPT2_TREE = BLOCK | {
    "blocks/attention/key_bias": (2, 3, 2),
    "blocks/attention/output": (2, 3, 2, 6),
    "blocks/attention/output_bias": (2, 6),
    "blocks/attention/query_bias": (2, 3, 2),
    "blocks/attention/value_bias": (2, 3, 2),
    "final_norm/bias": (6,),
    "final_norm/scale": (6,),
    "position/table": (29, 6),
}
TREES = {
    "gpt2": (GPT2, GPT2_TREE),
    "sinusoidal": (small(), BLOCK | HEAD),
    "learned": (small(position="learned"), BLOCK | HEAD | {"position/table": (29, 6)}),
    "rotary": (small(position="rotary"), BLOCK | HEAD),
    "alibi": (small(position="alibi"), BLOCK | HEAD),
    "relative": (small(position="relative"), BLOCK | HEAD | {"blocks/attention/relative/table": (2, 3, 29)}),
    "relative in a window": (
        small(position="relative", window=5),
        BLOCK | HEAD | {"blocks/attention/relative/table": (2, 3, 5)},
    ),
    "fire": (
        small(position="fire", position_options=fire.Scheme(bias_width=4)),
        BLOCK
        | HEAD
        | {"blocks/attention/fire/c": (2,), "blocks/attention/fire/multiplier": (2,)}
        | {"blocks/attention/fire/up": (2, 4), "blocks/attention/fire/up_bias": (2, 4)}
        | {"blocks/attention/fire/down": (2, 4, 3), "blocks/attention/fire/down_bias": (2, 3)},
    ),
    "none": (small(position="none"), BLOCK | HEAD),
    "one norm": (small(feedforward_norm=False), without("feedforward_norm")),
    "tied, with a bias": (small(tie_embeddings=True), BLOCK | {"head/bias": (11,)}),
    "sink": (small(attention_sink=True), BLOCK | HEAD | {"blocks/attention/sink": (2, 3)}),
    "cosine": (small(similarity="cosine"), BLOCK | HEAD | {"blocks/attention/gain": (2, 3)}),
    "additive": (small(similarity="additive"), BLOCK | HEAD | {"blocks/attention/vector": (2, 3, 2)}),
    "no feed-forward": (small(feedforward=False), without("feedforward")),
    "RMSNorm": (small(norm="rms", final_norm=True), without("norm/bias") | {"final_norm/scale": (6,)}),
    "no norm": (small(norm="none"), without("norm")),
}


@pytest.mark.parametrize("name", TREES)
def test_the_tree_of_parameters_is_a_contract_with_every_checkpoint(name):
    cfg, expected = TREES[name]
    leaves = names(shapes.__wrapped__(cfg))  # not those that a test in 64 bits may have kept
    assert {name: leaf.shape for name, leaf in leaves.items()} == expected, (
        "The names or shapes of the parameters changed, so checkpoints written before no longer load. If nobody asked "
        "for that, undo it. If it is meant: let checkpoint.py rename the old leaves (or refuse them in one sentence), "
        "say so in CHANGELOG.md, and then write the new tree here."
    )
    assert all(leaf.dtype == jnp.float32 for leaf in leaves.values())


def test_init_differs_between_keys_layers_and_tables(key):
    cfg = small(position="learned")
    init = jax.jit(model.init, static_argnums=1)
    params, other = init(key, cfg), init(jax.random.key(1), cfg)
    assert type(params) is dict
    for name in ("query", "key", "value"):
        weights, others = (np.asarray(p["blocks"]["attention"][name]) for p in (params, other))
        assert (weights != others).all() and (weights[0] != weights[1]).all()
    tables = [np.asarray(params[name]["table"]) for name in ("embedding", "position")]
    assert (tables[0] != tables[1][:V]).all()


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"d_model": 7, "n_heads": 3}, "d_model 7"),
        ({"position": "fourier"}, "position fourier is none of alibi, fire, .*, rotary, sinusoidal"),
        ({"activation": "silu"}, "activation silu is none of relu, gelu, gelu_tanh"),
        ({"norm": "batch"}, "norm batch"),
        ({"similarity": "euclidean"}, "similarity euclidean"),
        ({"position_options": fire.Scheme()}, "are not those of position sinusoidal"),
        ({"attention_dropout": -0.1}, "^attention_dropout -0.1 is not at least 0 and less than 1"),
        ({"n_heads": 0}, "n_heads 0 is not a whole number"),
        ({"n_layers": 0}, "n_layers 0"),
        ({"d_ff": 0}, "d_ff 0"),
        ({"window": -1}, "window -1"),
        ({"dropout": 1.0}, "dropout 1.0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        model.Config(**{"d_model": 12, "n_heads": 3} | changes)


@pytest.mark.parametrize(
    ("module", "changes", "named"),
    [
        (recurrent, {"cell": "transformer"}, "cell transformer is none of rnn, gru, lstm"),
        (recurrent, {"vocab_size": "11"}, "vocab_size .11. is not a whole number"),
        (recurrent, {"dropout": 1.0}, "dropout 1.0"),
        (seq2seq, {"d_model": 7}, "d_model 7 is not a multiple of n_heads 8"),
        (seq2seq, {"n_encoder_layers": 0}, "n_encoder_layers 0"),
        (seq2seq, {"source_vocab_size": 13, "share_embeddings": True}, "sizes 13 and 37000 differ"),
        (seq2seq, {"position": "alibi"}, "position alibi is none of sinusoidal, learned, rotary"),
        (seq2seq, {"similarity": "geometric"}, "similarity geometric"),
        (word2vec, {"variant": "glove"}, "variant glove is none of cbow, skip_gram"),
        (word2vec, {"negatives": 0}, "negatives 0 is not a whole number"),
    ],
)
def test_a_config_of_another_model_that_cannot_be_is_refused(module, changes, named):
    with pytest.raises(ValueError, match=named):
        module.Config(**changes)
