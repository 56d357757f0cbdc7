"""Figures of attention weights: a row is a query token, a column a key token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from apformer.report import sections
from apformer.report.figures import blank, legible
from apformer.settings import Settings, architecture_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TOKENS = 32  # rows or columns of a panel; later tokens are left out
LEAST = 4.0  # inches of the width and the height of a figure, so that the labels of the axes fit
MOST_PANELS = 64  # panels of a figure; with more heads, a panel is the mean of a layer


def pictures(settings: Settings, params: dict, batch: Any, vocabulary: Sequence[str]) -> dict[str, "Figure"]:
    """Return {"attention": figure} for the longest row of a batch; {} if the model captures no attention.

    Args:
        settings: Settings of the run.
        params: Parameters of its model.
        batch: A tasks.batch.Batch of two or more dimensions.
        vocabulary: Text of each token, by its id.
    """
    architecture = architecture_of(settings)
    if "attention" not in getattr(architecture, "CAPTURES", ()):
        return {}
    rows = sections.some_rows(batch)
    length_B = np.max(np.where(rows.weights_BT > 0, np.arange(1, rows.tokens_BT.shape[1] + 1), 1), axis=1)
    row = np.argmax(length_B)  # its last token is a target alone
    tokens_T = rows.tokens_BT[row, : max(1, min(length_B[row] - 1, MOST_TOKENS))]
    apply = jax.jit(architecture.apply, static_argnames=("cfg", "capture"))
    _, captured = apply(params, tokens_T[None], settings.model, capture=("attention",))
    texts = [vocabulary[int(token)] for token in tokens_T]
    return {"attention": draw(np.asarray(captured["attention"], np.float32)[:, 0], texts, texts)}


def draw(weights_LHTS: np.ndarray, source: Sequence[str], target: Sequence[str]) -> "Figure":
    """Draw a panel for each head, with the heads of a layer in a row; with too many heads, one panel for each layer.

    Tokens are written only at the left and at the bottom, since text takes most of the time of drawing.
    """
    if weights_LHTS.shape[0] * weights_LHTS.shape[1] > MOST_PANELS:
        weights_LHTS = weights_LHTS.mean(axis=1, keepdims=True)
    weights_LHTS = weights_LHTS[:MOST_PANELS, :, :MOST_TOKENS, :MOST_TOKENS]
    source, target = ([legible(text) or "∅" for text in texts[:MOST_TOKENS]] for texts in (source, target))
    L, H, T, S = weights_LHTS.shape
    figure = blank(max(LEAST, H * max(1.3, 0.6 + 0.14 * S)), max(LEAST, L * (0.6 + 0.14 * T) + 0.8))
    panels = figure.subplots(L, H, squeeze=False)
    for (layer, head), axes in np.ndenumerate(panels):
        axes.imshow(weights_LHTS[layer, head], cmap="Blues", vmin=0, vmax=1)
        axes.set_title(f"layer {layer + 1}" + f", head {head + 1}" * (H > 1), loc="left", fontsize=9)
        below, left = source if layer == L - 1 else [], target if head == 0 else []
        axes.set_xticks(range(len(below)), below, fontsize=7, rotation=90 * (max(map(len, source)) > 1))
        axes.set_yticks(range(len(left)), left, fontsize=7)
        axes.tick_params(length=0)
    figure.supxlabel("key (the token that is attended to)", fontsize=9)
    figure.supylabel("query (the token that attends)", fontsize=9)
    figure.colorbar(panels[0, 0].images[0], ax=panels, shrink=0.4, label="weight")
    return figure
