"""A diagram of a model, drawn from its Config: the way of a token to its logits, from below upwards.

Every architecture of apformer has its own drawing, a function of the Config. A number in a box is that of the model;
D, H, K, F, V are the axes of apformer/README.md.
"""

import textwrap
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from apformer.report.figures import GREY, ORANGE, blank
from apformer.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {  # of boxes, by what they hold
    "embedding": "#F6DDE8",
    "attention": "#FBE3CF",
    "feedforward": "#D6ECF8",
    "norm": "#F7F3C6",
    "head": "#DCE5F2",
    "cell": "#D8F0E6",
}
ADDED = ("sinusoidal", "learned")  # positions that are added to the embedding
NORMS = {"layer": "LayerNorm", "rms": "RMSNorm", "none": ""}
USUAL = {"window": None, "attention_sink": False, "norm": "layer", "final_norm": False, "residual": True} | {
    "feedforward": True,
    "feedforward_norm": True,
    "tie_embeddings": False,
    "share_embeddings": False,
    "scale_embedding": True,
    "position": "none",
}
WIDTH, HEIGHT, GAP = 3.4, 0.62, 0.36  # of a box, and between two
EQUATIONS = {
    "rnn": "$h_t = \\tanh(W x_t + b + U h_{t-1})$",
    "gru": "$r, z = \\sigma(W x_t + b + U h_{t-1})$\n$n = \\tanh(W x_t + b + r\\,(U h_{t-1} + b'))$\n"
    "$h_t = (1 - z)\\, n + z\\, h_{t-1}$",
    "lstm": "$i, f, o = \\sigma(W x_t + b + U h_{t-1})$\n$n = \\tanh(W x_t + b + U h_{t-1})$\n"
    "$c_t = f c_{t-1} + i\\, n$\n$h_t = o \\tanh(c_t)$",
}


def pictures(settings: Settings) -> dict[str, "Figure"]:
    """Return {"architecture": figure} of the model of a run, or {} if there is no drawing of its architecture."""
    draw = DRAWINGS.get(settings.architecture)
    return {"architecture": draw(settings.model)} if draw else {}


def decoder(cfg: Any) -> "Figure":
    """Draw the decoder-only transformer."""
    cfg, column = _complete(cfg), _Column(_axes(7.6), 0, "tokens")
    _embed(column, cfg.vocab_size, cfg)
    _stack(column, cfg, cfg.n_layers, [_self_attention(cfg, "masked ")])
    _read_out(column, cfg.vocab_size, cfg)
    return _fit(column, (-3.4, 3.4))


def encoder_decoder(cfg: Any) -> "Figure":
    """Draw the encoder on the left, the decoder on the right, and an arrow where the decoder reads the source."""
    cfg, axes = _complete(cfg), _axes(13.4)
    encoder, decoder = _Column(axes, -3.6, "source tokens"), _Column(axes, 3.6, "target tokens so far")
    _embed(encoder, cfg.source_vocab_size, cfg)
    _stack(encoder, cfg, cfg.n_encoder_layers, [_self_attention(cfg, "")])
    _final_norm(encoder, cfg)
    rotary = ", rotary positions" if cfg.position == "rotary" else ""
    cross = f"cross-attention\n{_heads(cfg)}{rotary}, keys and values of the source"
    _embed(decoder, cfg.target_vocab_size, cfg)
    _, reads, _ = _stack(decoder, cfg, cfg.n_decoder_layers, [_self_attention(cfg, "masked "), cross])
    above = encoder.y + 0.45
    axes.plot([encoder.x, encoder.x, 0, 0], [encoder.y, above, above, reads], color=ORANGE)
    _arrow(axes, (0, reads), (decoder.x - WIDTH / 2, reads), ORANGE)
    _read_out(decoder, cfg.target_vocab_size, cfg)
    return _fit(decoder, (-7, 7))


def recurrent(cfg: Any) -> "Figure":
    """Draw three steps of a recurrent network side by side, and the equation of its cell."""
    cfg, axes, apart = _complete(cfg), _axes(12), 4.6
    column, state = None, "$h$, $c$" if cfg.cell == "lstm" else "$h$"
    for k, (time, after) in enumerate(pairwise(("t-1", "t", "t+1", "t+2"))):
        column = _Column(axes, apart * k, f"$x_{{{time}}}$")
        _embed(column, cfg.vocab_size, cfg)
        for layer in range(1, cfg.n_layers + 1):
            y, right = column.box(f"{cfg.cell.upper()} cell, layer {layer}", "cell"), column.x + WIDTH / 2
            for start in (right, right - apart)[: 1 + (k == 0)]:  # the first step has a state before it
                _arrow(axes, (start, y), (start + apart - WIDTH, y), ORANGE)
            _words(axes, column.x + apart / 2, y + 0.18, state, 10, ORANGE)
        _read_out(column, cfg.vocab_size, cfg, f"logits of $x_{{{after}}}$")
    size = f"{cfg.n_layers} × {'2 × ' * (cfg.cell == 'lstm')}{cfg.d_model}"
    _words(axes, apart, -0.9, f"the same weights at every step; the state of a row has {size} numbers", 10)
    bottom = -1.35 - 0.28 * (EQUATIONS[cfg.cell].count("\n") + 1)
    _words(axes, apart, bottom, EQUATIONS[cfg.cell], 12)
    return _fit(column, (-3.3, 2 * apart + 3.3), 2 * bottom + 1.2)


def word2vec(cfg: Any) -> "Figure":
    """Draw CBOW or skip-gram: two tables, and nothing between them but a mean."""
    ends = ["words t - 2, t - 1, t + 1, t + 2", "word t"]
    given, predicted = ends if cfg.variant == "cbow" else reversed(ends)
    column = _Column(_axes(7.6), 0, given)
    column.box(f"table of vectors v\nV {cfg.vocab_size:,} → D {cfg.d_model}", "embedding")
    if cfg.variant == "cbow":
        column.box("mean over the context", "norm")
    column.box(f"table of vectors u: u · h\nD {cfg.d_model} → V {cfg.vocab_size:,}", "head")
    column.end(predicted)
    loss = "softmax over all words" if cfg.loss == "softmax" else f"against {cfg.negatives} words that are drawn"
    _words(column.axes, 0, column.y + 0.3, f"loss: {loss}", 10)
    column.y += 0.6
    return _fit(column, (-3.4, 3.4))


DRAWINGS = {"model": decoder, "seq2seq": encoder_decoder, "recurrent": recurrent, "word2vec": word2vec}


class _Column:
    """Boxes above each other on a vertical line. The next one stands at `y`."""

    def __init__(self, axes: "Axes", x: float, below: str) -> None:
        self.axes, self.x, self.y = axes, x, 0.25
        _words(axes, x, 0, below, 11)

    def rise(self, by: float = GAP) -> None:
        """Draw an arrow upwards."""
        _arrow(self.axes, (self.x, self.y), (self.x, self.y + by))
        self.y += by

    def box(self, text: str, kind: str, gap: float = GAP) -> float:
        """Draw an arrow to a box, and return the height of its middle."""
        self.rise(gap)
        middle = self.y + HEIGHT / 2
        _patch(self.axes, (self.x - WIDTH / 2, self.y, WIDTH, HEIGHT), 0.12, facecolor=COLOURS[kind])
        _words(self.axes, self.x, middle, text, 9)
        self.y += HEIGHT
        return middle

    def plus(self) -> float:
        """Draw the sign of a sum, and return its height."""
        self.rise(0.3)
        middle = self.y + 0.16
        self.axes.plot(self.x, middle, "o", markersize=13, color="white", markeredgecolor=GREY, zorder=3)
        self.axes.text(self.x, middle, "+", ha="center", va="center", fontsize=11, zorder=4)
        self.y += 0.32
        return middle

    def end(self, text: str) -> None:
        """Draw an arrow to a text."""
        self.rise()
        _words(self.axes, self.x, self.y + 0.24, text, 11)
        self.y += 0.44


def _complete(cfg: Any) -> SimpleNamespace:
    """Return a Config with the usual values of fields that its model does not have."""
    return SimpleNamespace(**USUAL | vars(cfg))


def _self_attention(cfg: Any, masked: str) -> str:
    """Return the text of the box of self-attention."""
    options = {
        _heads(cfg): True,
        f"window of {cfg.window}": cfg.window,
        f"{cfg.position} positions": cfg.position not in (*ADDED, "none"),
        "a sink": cfg.attention_sink,
        f"{cfg.similarity} scores": cfg.similarity != "scaled_dot",
    }
    there = ", ".join(option for option, is_there in options.items() if is_there)
    return f"{masked}self-attention\n{textwrap.fill(there, 46)}"


def _heads(cfg: Any) -> str:
    return f"{cfg.n_heads} {'heads' if cfg.n_heads > 1 else 'head'} of {cfg.d_model // cfg.n_heads}"


def _embed(column: _Column, vocab_size: int, cfg: Any) -> None:
    """Draw the token embedding, and positions where they are added to it."""
    scaled = ", times √D" if cfg.scale_embedding else ""
    shared = ", one table for both sides" if cfg.share_embeddings else ""
    column.box(f"token embedding{shared}\nV {vocab_size:,} → D {cfg.d_model}{scaled}", "embedding")
    if cfg.position in ADDED:
        x, y = column.x, column.plus()
        _words(column.axes, x + 1.85, y, f"{cfg.position}\npositions", 9)
        _arrow(column.axes, (x + 1.1, y), (x + 0.16, y))


def _stack(column: _Column, cfg: Any, n_layers: int, attentions: list[str]) -> list[float]:
    """Draw a block in a frame, and return the height of each of its sub-layers: attentions and feed-forward."""
    axes, x, bottom, heights = column.axes, column.x, column.y + 0.3, []
    D, F = cfg.d_model, cfg.d_ff or 4 * cfg.d_model
    feedforward = f"feed-forward\nD {D} → F {F} → D {D}, {cfg.activation.replace('_', ' ')}"
    for text in [*attentions, feedforward][: None if cfg.feedforward else -1]:
        branch, gap, is_attention = column.y + 0.45, 0.75, text is not feedforward
        norm = NORMS[cfg.norm] if is_attention or cfg.feedforward_norm else ""
        if norm and cfg.norm_position == "pre":
            column.box(norm, "norm", gap)
            gap = GAP
        heights.append(column.box(text, "attention" if is_attention else "feedforward", gap))
        if cfg.residual:
            y, side = column.plus(), x + WIDTH / 2 + 0.45
            axes.plot([x, side, side], [branch, branch, y], color=GREY, linewidth=1)
            _arrow(axes, (side, y), (x + 0.16, y))
        if norm and cfg.norm_position == "post":
            column.box(norm, "norm")
    top, left = column.y + 0.3, x - WIDTH / 2 - 0.5
    axes.plot([x, x], [column.y, top], color=GREY, linewidth=1)
    _patch(axes, (left, bottom, WIDTH + 1.25, top - bottom), 0.2, facecolor="none", linestyle="--")
    _words(axes, left - 0.35, (bottom + top) / 2, f"{n_layers} ×", 12)
    column.y = top
    return heights


def _final_norm(column: _Column, cfg: Any) -> None:
    if cfg.final_norm:
        column.box(NORMS[cfg.norm] or "LayerNorm", "norm")


def _read_out(column: _Column, vocab_size: int, cfg: Any, logits: str = "logits of the next token") -> None:
    """Draw the final norm and the output head."""
    _final_norm(column, cfg)
    tied = "\nthe embedding table, transposed" if cfg.tie_embeddings else ""
    column.box(f"linear D {cfg.d_model} → V {vocab_size:,}{tied}", "head")
    column.end(logits)


def _axes(width: float) -> "Axes":
    """Return the axes that fill a figure of a width in inches."""
    return blank(width, 6, layout=None).add_axes((0, 0, 1, 1))


def _fit(column: _Column, across: tuple[float, float], bottom: float = -0.4) -> "Figure":
    """Return the figure, as high as a column, so that a unit is as long upwards as across."""
    column.axes.set(xlim=across, ylim=(bottom, column.y))
    column.axes.set_axis_off()
    figure = column.axes.figure
    width = figure.get_size_inches()[0]
    figure.set_size_inches(width, width * (column.y - bottom) / (across[1] - across[0]))
    return figure


def _patch(axes: "Axes", box: tuple[float, float, float, float], rounding: float, **style: Any) -> None:
    """Draw a rectangle (left, bottom, width, height) with round corners."""
    from matplotlib.patches import FancyBboxPatch

    shape = f"round,pad=0,rounding_size={rounding}"
    axes.add_patch(FancyBboxPatch(box[:2], *box[2:], boxstyle=shape, edgecolor=GREY, **style))


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0})


def _words(axes: "Axes", x: float, y: float, text: str, size: float, colour: str = "black") -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, linespacing=1.3)
