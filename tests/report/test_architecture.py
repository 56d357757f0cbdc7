"""A diagram says what its Config says; a picture of attention shows what the model reads."""

from dataclasses import replace

import jax
import numpy as np

from apformer import model, recurrent, seq2seq, word2vec
from apformer.report import architecture, attention
from apformer.runs import recipes
from apformer.tasks.batch import Batch
from tests.helpers.small_models import draw_tokens, small


def words(figure):
    """All that is written in a diagram, from below upwards, and its title."""
    axes = figure.axes[0]
    texts = sorted((text for text in axes.texts if text.get_text()), key=lambda text: text.get_position()[1])
    return [text.get_text() for text in texts] + [axes.get_title()]


def boxes(cfg):
    """The parts of a decoder between its embedding and its head, without their sizes."""
    return [text.split("\n")[0] for text in words(architecture.decoder(cfg))][2:-3]


def test_the_published_block_has_its_norms_after_the_sums_and_gpt2_before_the_sublayers():
    post = boxes(model.Config(norm_position="post", position="none"))
    assert post == ["masked self-attention", "⊕", "LayerNorm", "1 ×", "feed-forward", "⊕", "LayerNorm"]
    pre = boxes(model.Config(position="none"))
    assert pre == ["LayerNorm", "masked self-attention", "⊕", "1 ×", "LayerNorm", "feed-forward", "⊕"]
    bare = model.Config(position="none", norm="none", residual=False, feedforward=False)
    assert {*boxes(bare)} == {"masked self-attention", "1 ×"} and "RMSNorm" in boxes(replace(bare, norm="rms"))


def test_a_diagram_states_sizes_and_options():
    cfg = model.Config(d_model=48, n_heads=3, n_layers=5, d_ff=7, window=9, attention_sink=True, tie_embeddings=True)
    said = " ".join(words(architecture.decoder(cfg)))
    for fact in ("3 heads of 16", "window of 9", "a sink", "D 48 → F 7 → D 48", "5 ×", "embedding table, transposed"):
        assert fact in said
    pair = seq2seq.Config(n_encoder_layers=2, n_decoder_layers=4, position="rotary")
    said = " ".join(words(architecture.encoder_decoder(pair)))
    for fact in ("2 ×", "4 ×", "cross-attention", "source tokens", "one table for both sides"):
        assert fact in said
    assert said.count("rotary positions") == 3  # of the encoder, the decoder and across
    said = words(architecture.recurrent(recurrent.Config(cell="lstm", n_layers=2)))
    assert said.count("$h_{t-1}$, $c_{t-1}$") == said.count("$h_{t}$, $c_{t}$") == 2 and "LSTM cell, layer 2" in said


def test_word2vec_reads_the_context_or_the_centre_and_all_that_is_written_is_inside():
    cbow, skip_gram = (architecture.word2vec(word2vec.Config(variant=kind)) for kind in ("cbow", "skip_gram"))
    assert words(cbow)[-2] == words(skip_gram)[0] == "word t" and words(cbow)[-1].startswith("loss: against")
    cbow.draw_without_rendering()
    for text in (cbow.axes[0].title, *cbow.axes[0].texts):
        assert cbow.bbox.containsx(text.get_window_extent().x0) and cbow.bbox.containsy(text.get_window_extent().y1)


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
