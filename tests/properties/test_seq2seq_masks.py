"""What a logit of the encoder-decoder may depend on: nothing in the future, nothing in the padding, bit for bit."""

import numpy as np
import pytest

from tests.helpers.small_models import draw_params
from tests.test_seq2seq import B, S, T, U, V, apply, draw_tokens, small

DRAWS = 20
GARBAGE = (-1, V, U, 2**31 - 1, -(2**31))


def random_configs():
    """Five: each similarity, scaled_dot with post- and with pre-norm; the other options drawn at random."""
    rng = np.random.default_rng(0)

    def choice(*values):
        return values[rng.integers(len(values))]

    def draw(similarity, norm_position):
        share = choice(False, True)
        return small(
            similarity=similarity,
            norm_position=norm_position,
            source_vocab_size=V if share else U,
            share_embeddings=share,
            tie_embeddings=choice(False, True),
            n_heads=choice(1, 3),
            n_encoder_layers=choice(1, 2),
            n_decoder_layers=choice(1, 2),
            position=choice("sinusoidal", "learned"),
            scale_embedding=choice(False, True),
            attention_bias=choice(False, True),
            activation=choice("relu", "gelu", "gelu_tanh"),
            final_norm=choice(False, True),
        )

    pairs = ("scaled_dot", "post"), ("scaled_dot", "pre"), ("dot", "pre"), ("cosine", "post"), ("additive", "pre")
    return [draw(*pair) for pair in pairs]


every_config = pytest.mark.parametrize(
    "cfg", random_configs(), ids=lambda cfg: f"{cfg.similarity}-{cfg.norm_position}-{cfg.position}"
)


def hide(tokens, others, seen, real, rng):
    """The tokens that are seen; other tokens where a row has more, and anything at all in its padding."""
    garbage = rng.choice(GARBAGE, tokens.shape)
    return np.where(seen, tokens, np.where(real, others, garbage)).astype(np.int32)


def before(length, ends):
    """Which places come before the end of a row."""
    return np.arange(length)[None] < ends[:, None]


def draw_case(cfg, seed):
    """Source, target, their lengths, how much of each target is looked at, and both with all that is hidden changed."""
    rng = np.random.default_rng(seed)
    (source, target), (other_source, other_target) = draw_tokens(cfg, seed), draw_tokens(cfg, seed + DRAWS)
    source_lengths, target_lengths = (rng.integers(0, n + 1, B).astype(np.int32) for n in (S, T))
    seen = before(T, np.minimum(rng.integers(1, T + 1, B), target_lengths))
    real = before(S, source_lengths)
    changed_source = hide(source, other_source, real, real, rng)
    changed_target = hide(target, other_target, seen, before(T, target_lengths), rng)
    lengths = {"source_lengths_B": source_lengths, "target_lengths_B": target_lengths}
    return (source, target), (changed_source, changed_target), lengths, seen


@every_config
def test_a_hidden_token_changes_nothing(cfg):
    """5 models, each with 20 draws of all tokens, and for each of three rows of both lengths and of a cut."""
    params, felt = draw_params(cfg), 0
    for seed in range(DRAWS):
        (source, target), changed, lengths, seen = draw_case(cfg, seed)
        logits = np.asarray(apply(params, source, target, cfg, **lengths))
        again = np.asarray(apply(params, *changed, cfg, **lengths))
        assert np.isfinite(logits).all() and np.isfinite(again).all()
        np.testing.assert_array_equal(again[seen], logits[seen])
        felt += (again[~seen] != logits[~seen]).any()
    assert felt > DRAWS / 2  # what is hidden from some is seen by others
