"""A picture of attention shows what the model reads, and stays small."""

from dataclasses import replace

import jax
import numpy as np

from apformer import model
from apformer.report import attention, figures
from apformer.runs import recipes
from apformer.tasks.batch import Batch
from tests.helpers.small_models import draw_tokens, small


def test_attention_of_a_row_is_drawn_head_by_head(random_params):
    settings = replace(recipes.parse([]), model=small())
    params, tokens_BT = random_params(small()), draw_tokens(3, 7)
    weights_BT = (np.arange(7) < np.array([[3], [5], [4]])).astype(np.float32)
    batch = Batch(tokens_BT, weights_BT)
    figure = attention.pictures(settings, params, batch, list("0123456789 "))["attention"]
    apply = jax.jit(model.apply, static_argnames=("cfg", "capture"))
    _, captured = apply(params, tokens_BT[1:2, :4], small(), capture=("attention",))
    drawn = [np.asarray(axes.images[0].get_array()) for axes in figure.axes[:-1]]
    np.testing.assert_allclose(np.stack(drawn), np.asarray(captured["attention"])[:, 0].reshape(-1, 4, 4), atol=1e-6)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == [figures.legible("0123456789 "[token]) for token in tokens_BT[1, :4]]
    assert attention.pictures(recipes.parse(["--recipe", "recurrent"]), None, None, None) == {}


def test_few_tokens_have_room(tmp_path):
    """Where there is none, matplotlib warns."""
    attention.draw(np.ones((1, 1, 3, 3)), *[["end", "zwei", "Vögel"]] * 2).savefig(tmp_path / "few.png")


def test_of_very_many_heads_the_mean_is_drawn():
    figure = attention.draw(np.full((9, 8, 2, 2), 0.5), ["a", "b"], ["a", "b"])
    assert sum(bool(axes.images) for axes in figure.axes) == 9


def test_a_picture_of_a_long_row_is_bounded():
    figure = attention.draw(np.full((99, 2, 400, 300), 0.01), ["word"] * 300, ["word"] * 400)
    width, height = figure.get_size_inches() * figure.dpi
    assert len(figure.axes) == attention.MOST_PANELS + 1 and width * height < 3e7
