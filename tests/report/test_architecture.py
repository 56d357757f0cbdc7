"""A diagram says what its Config says; a picture of attention shows what the model reads."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from apformer import model, recurrent, seq2seq, word2vec
from apformer.report import architecture, attention
from apformer.runs import recipes
from apformer.tasks.batch import Batch
from tests.helpers.small_models import draw_tokens, small


def words(figure):
    """All that is written in a diagram, from below upwards."""
    texts = figure.axes[0].texts
    return [text.get_text() for text in sorted(texts, key=lambda text: text.xy[1] if hasattr(text, "xy") else text._y)]


def boxes(figure):
    """The names of the parts of a diagram, without their sizes."""
    return [text.split("\n")[0] for text in words(figure) if text]


def test_the_published_block_has_its_norms_after_the_sums_and_gpt2_before_the_sublayers():
    post = boxes(architecture.decoder(model.Config(norm_position="post", position="none")))
    assert post[2:-2] == ["masked self-attention", "+", "LayerNorm", "1 ×", "feed-forward", "+", "LayerNorm"]
    pre = boxes(architecture.decoder(model.Config(position="none")))
    assert pre[2:-2] == ["LayerNorm", "masked self-attention", "+", "1 ×", "LayerNorm", "feed-forward", "+"]


def test_a_part_that_is_not_there_is_not_drawn():
    cfg = model.Config(position="none", norm="none", residual=False, feedforward=False)
    assert {*boxes(architecture.decoder(cfg))[2:-2]} == {"masked self-attention", "1 ×"}
    assert "RMSNorm" in boxes(architecture.decoder(replace(cfg, norm="rms")))


def test_a_diagram_states_sizes():
    cfg = model.Config(d_model=48, n_heads=3, n_layers=5, d_ff=7, window=9, attention_sink=True, tie_embeddings=True)
    said = " ".join(words(architecture.decoder(cfg)))
    for fact in (
        "3 heads of 16",
        "window of 9",
        "a sink",
        "D 48 → F 7 → D 48",
        "5 ×",
        "the embedding table, transposed",
    ):
        assert fact in said
    said = " ".join(words(architecture.encoder_decoder(seq2seq.Config(n_encoder_layers=2, n_decoder_layers=4))))
    for fact in ("2 ×", "4 ×", "cross-attention", "source tokens", "one table for both sides"):
        assert fact in said
    said = words(architecture.encoder_decoder(seq2seq.Config(position="rotary")))
    assert sum("rotary positions" in text for text in said) == 3  # of the encoder, the decoder and across


@pytest.mark.parametrize(("cell", "state"), [("rnn", "h"), ("gru", "h"), ("lstm", "h, c")])
def test_the_state_of_a_cell_goes_from_step_to_step(cell, state):
    said = words(architecture.recurrent(recurrent.Config(cell=cell, n_layers=2)))
    assert sum(text.replace("$", "") == state for text in said) == 6
    assert f"{cell.upper()} cell, layer 2" in said


def test_word2vec_reads_the_context_or_the_centre():
    cbow, skip_gram = (words(architecture.word2vec(word2vec.Config(variant=v))) for v in ("cbow", "skip_gram"))
    assert [text for text in cbow if text.startswith("word")][-1] == "word t"
    assert [text for text in skip_gram if text.startswith("word")][0] == "word t"


def test_every_architecture_of_a_recipe_has_a_diagram():
    for flags in ([], ["--recipe", "recurrent"], ["--recipe", "words"], ["--recipe", "translate"]):
        assert [*architecture.pictures(recipes.parse(flags))] == ["architecture"]


def test_attention_of_a_row_is_drawn_head_by_head(random_params):
    settings = replace(recipes.parse([]), model=small())
    params, tokens_BT = random_params(small()), draw_tokens(3, 7)
    weights_BT = (np.arange(7) < np.array([[3], [5], [4]])).astype(np.float32)
    batch = Batch(tokens_BT, weights_BT)
    figure = attention.pictures(settings, params, batch, list("0123456789 "))["attention"]
    apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))
    _, captured = apply(params, tokens_BT[1:2, :4], small(), capture=("attention",))
    drawn = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    np.testing.assert_allclose(np.stack(drawn), np.asarray(captured["attention"])[:, 0].reshape(-1, 4, 4), atol=1e-6)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == [attention.visible("0123456789 "[token]) for token in tokens_BT[1, :4]]
    assert attention.pictures(recipes.parse(["--recipe", "recurrent"]), None, None, None) == {}


def test_of_very_many_heads_the_mean_is_drawn():
    figure = attention.heads(np.full((9, 8, 2, 2), 0.5), ["a", "b"])
    assert sum(bool(axes.images) for axes in figure.axes) == 9


def test_white_space_is_visible():
    assert attention.visible(" a\n$") == r"␣a⏎\$" and attention.visible("") == "∅"
