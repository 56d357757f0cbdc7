"""Pictures of attention: which tokens of the source each token of a translation was read from."""

import numpy as np


def cross_attention(weights_LHTS, source, target):
    """The mean over heads in each layer, side by side; a row is a token written, a column a token read."""
    L, _, T, S = weights_LHTS.shape
    figure, panels = canvas(L, width=1.4 + 0.32 * S, height=1.2 + 0.24 * T)
    for layer, axes in enumerate(panels):
        axes.imshow(np.mean(weights_LHTS[layer], axis=0), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_title(f"layer {layer + 1}", loc="left")
        axes.set_xticks(range(S), source, rotation=90)
        axes.set_yticks(range(T), target)
    return figure


def canvas(columns, width, height):
    """(figure, panels side by side, each of a size in inches)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, height + 0.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]
