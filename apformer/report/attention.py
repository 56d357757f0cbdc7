"""Pictures of attention: which tokens each token reads. A row is the token that reads, a column one that is read."""

import jax
import numpy as np

from apformer.report import asked
from apformer.settings import architecture_of

MOST_TOKENS = 32  # of the row that is drawn
MOST_PANELS = 64  # heads drawn one by one; of more heads the mean of each layer


def pictures(settings, params, batch, vocabulary):
    """{"attention": Figure} of a row of a batch, as each head of the model reads it; {} of a model without attention.

    batch: tasks.batch.Batch, of two or more dimensions. vocabulary: the text of each token, by its id.
    """
    architecture = architecture_of(settings)
    if "attention" not in architecture.CAPTURES:
        return {}
    tokens_T = longest_row(asked.few(batch))
    apply = jax.jit(architecture.apply, static_argnames=("cfg", "capture"))
    _, captured = apply(params, tokens_T[None], settings.model, capture=("attention",))
    texts = [visible(vocabulary[token]) for token in tokens_T]
    return {"attention": heads(np.asarray(captured["attention"], np.float32)[:, 0], texts)}


def longest_row(batch):
    """What a model reads of the first of a batch's longest rows: all but the last token, at most MOST_TOKENS."""
    length_B = np.max(np.where(batch.weights_BT > 0, np.arange(1, batch.tokens_BT.shape[1] + 1), 1), axis=1)
    row = int(np.argmax(length_B))
    return batch.tokens_BT[row, : max(1, min(length_B[row] - 1, MOST_TOKENS))]


def visible(text):
    """The text of a token, white space as a sign."""
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥").replace("$", r"\$") or "∅"


def heads(weights_LHTS, texts):
    """Every head of every layer: a layer a row of panels. Of very many heads, the mean of those of each layer.

    The tokens stand at the left and below alone, since text takes most of the time of drawing.
    """
    L, H, T, _ = weights_LHTS.shape
    if L * H > MOST_PANELS:
        return by_layer(weights_LHTS, texts, texts)
    figure, panels = canvas(H, width=0.6 + 0.13 * T, height=0.6 + 0.13 * T, rows=L)
    for (layer, head), axes in np.ndenumerate(panels):
        axes.imshow(weights_LHTS[layer, head], cmap="Blues", vmin=0, vmax=1)
        axes.set_title(f"layer {layer + 1}, head {head + 1}", loc="left", fontsize=9)
        below, left = texts if layer == L - 1 else [], texts if head == 0 else []
        axes.set_xticks(range(len(below)), below, fontsize=7)
        axes.set_yticks(range(len(left)), left, fontsize=7)
        axes.tick_params(axis="x", rotation=90 if max(map(len, texts)) > 1 else 0)
        axes.tick_params(length=0)
    return figure


def by_layer(weights_LHTS, source, target):
    """The mean over heads in each layer, side by side; a row is a token written, a column a token read."""
    L, _, T, S = weights_LHTS.shape
    columns = min(L, 6)
    figure, panels = canvas(columns, width=1.4 + 0.32 * S, height=1.2 + 0.24 * T, rows=-(-L // columns))
    for layer, axes in enumerate(panels.flat):
        if layer >= L:
            axes.set_axis_off()
            continue
        axes.imshow(np.mean(weights_LHTS[layer], axis=0), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_title(f"layer {layer + 1}", loc="left")
        axes.set_xticks(range(S), source, rotation=90)
        axes.set_yticks(range(T), target)
    return figure


def canvas(columns, width, height, rows=1):
    """(figure, panels in rows and columns, each of a size in inches)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, rows * height + 0.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)
