"""A diagram of a model, drawn from its Config: the way of a token to its logits, from below upwards.

Every architecture of apformer has its own drawing, a function of the Config. A number in a box is that of the model;
D, H, K, F, V are the axes of apformer/README.md.
"""

import textwrap
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

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
SIDE = 1.7  # half the width of a box
EQUATIONS = {
    "rnn": "$h_t = \\tanh(W x_t + b + U h_{t-1})$",
    "gru": "$r, z = \\sigma(W x_t + b + U h_{t-1})$\n$n = \\tanh(W x_t + b + r\\,(U h_{t-1} + b'))$\n"
    "$h_t = (1 - z)\\, n + z\\, h_{t-1}$",
    "lstm": "$i, f, o = \\sigma(W x_t + b + U h_{t-1})$\n$n = \\tanh(W x_t + b + U h_{t-1})$\n"
    "$c_t = f c_{t-1} + i\\, n$\n$h_t = o \\tanh(c_t)$",
}


class Row(NamedTuple):
    """A text, a box or a sum in a column. A sum adds the residual from some rows below; rows are 1 apart."""

    text: str
    kind: str = "text"
    skipped: int = 0


def pictures(settings: Settings) -> dict[str, "Figure"]:
    """Return {"architecture": figure} of the model of a run, or {} if there is no drawing of its architecture."""
    draw = DRAWINGS.get(settings.architecture)
    return {"architecture": draw(settings.model)} if draw else {}


def decoder(cfg: Any) -> "Figure":
    """Draw the decoder-only transformer."""
    cfg = _complete(cfg)
    column = _embedding(cfg, "tokens"), _block(cfg, [_self_attention(cfg, "masked ")]), _head(cfg)
    axes = _axes((-3.1, 2.9), sum(map(len, column)))
    _draw(axes, 0, *column, cfg.n_layers)
    return axes.figure


def encoder_decoder(cfg: Any) -> "Figure":
    """Draw the encoder on the left, the decoder on the right, and an arrow where the decoder reads the source."""
    source = _complete(cfg, vocab_size=cfg.source_vocab_size)
    cfg = _complete(cfg, vocab_size=cfg.target_vocab_size)
    rotary = ", rotary positions" if cfg.position == "rotary" else ""
    cross = f"cross-attention\n{_heads(cfg)}{rotary}, keys and values of the source"
    encoder = _embedding(source, "source tokens"), _block(source, [_self_attention(source, "")]), _final_norm(source)
    block = _block(cfg, [_self_attention(cfg, "masked "), cross])
    decoder = _embedding(cfg, "target tokens so far"), block, _head(cfg)
    axes, x, top = _axes((-6.7, 6.5), sum(map(len, decoder))), 3.6, sum(map(len, encoder)) - 0.35
    _draw(axes, -x, *encoder, cfg.n_encoder_layers)
    _draw(axes, x, *decoder, cfg.n_decoder_layers)
    read = len(decoder[0]) + [row.text for row in block].index(cross)
    axes.plot([-x, -x, 0, 0], [top - 0.35, top, top, read], color=ORANGE)
    _arrow(axes, (0, read), (x - SIDE, read), ORANGE)
    return axes.figure


def recurrent(cfg: Any) -> "Figure":
    """Draw a step of a recurrent network between the states before and after it, under the equation of its cell."""
    cfg = _complete(cfg)
    names = "hc" if cfg.cell == "lstm" else "h"
    cells = [Row(f"{cfg.cell.upper()} cell, layer {layer + 1}", "cell") for layer in range(cfg.n_layers)]
    below, above = _embedding(cfg, "$x_t$"), _head(cfg, "logits of $x_{t+1}$")
    axes = _axes((-3.4, 3.4), len(below) + len(cells) + len(above))
    note = f"the same weights at every step; the state has {cfg.n_layers} × {len(names)} × {cfg.d_model} numbers"
    axes.set_title(f"{EQUATIONS[cfg.cell]}\n\n{note}", fontsize=11)
    _draw(axes, 0, below, cells, above)
    for y in range(len(below), len(below) + len(cells)):
        for x, time in ((-3.2, "t-1"), (SIDE, "t")):
            _arrow(axes, (x, y), (x + 1.5, y), ORANGE)
            _text(axes, x + 0.75, y + 0.2, ", ".join(f"${name}_{{{time}}}$" for name in names), ORANGE)
    return axes.figure


def word2vec(cfg: Any) -> "Figure":
    """Draw CBOW or skip-gram: two tables, and nothing between them but a mean."""
    ends = ["words t - 2, t - 1, t + 1, t + 2", "word t"]
    given, predicted = ends if cfg.variant == "cbow" else reversed(ends)
    loss = "softmax over all words" if cfg.loss == "softmax" else f"against {cfg.negatives} words that are drawn"
    rows = [
        Row(given),
        Row(f"table of vectors v\nV {cfg.vocab_size:,} → D {cfg.d_model}", "embedding"),
        *([Row("mean over the context", "norm")] if cfg.variant == "cbow" else []),
        Row(f"table of vectors u: u · h\nD {cfg.d_model} → V {cfg.vocab_size:,}", "head"),
        Row(predicted),
    ]
    axes = _axes((-3, 3), len(rows))
    axes.set_title(f"loss: {loss}", fontsize=11)
    _draw(axes, 0, rows)
    return axes.figure


DRAWINGS = {"model": decoder, "seq2seq": encoder_decoder, "recurrent": recurrent, "word2vec": word2vec}


def _complete(cfg: Any, **more: int) -> SimpleNamespace:
    """Return a Config with more fields, and the usual values of those that its model does not have."""
    return SimpleNamespace(**USUAL | vars(cfg) | more)


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


def _embedding(cfg: Any, tokens: str) -> list[Row]:
    """Return the tokens, their embedding, and positions where they are added to it."""
    scaled = ", times √D" if cfg.scale_embedding else ""
    shared = ", one table for both sides" if cfg.share_embeddings else ""
    added = f", plus {cfg.position} positions" if cfg.position in ADDED else ""
    return [
        Row(tokens),
        Row(f"token embedding{shared}\nV {cfg.vocab_size:,} → D {cfg.d_model}{scaled}{added}", "embedding"),
    ]


def _block(cfg: Any, attentions: list[str]) -> list[Row]:
    """Return the sub-layers of a block, attentions and feed-forward, with their norms and sums."""
    D, F = cfg.d_model, cfg.d_ff or 4 * cfg.d_model
    layers = [(Row(text, "attention"), True) for text in attentions]
    if cfg.feedforward:
        text = f"feed-forward\nD {D} → F {F} → D {D}, {cfg.activation.replace('_', ' ')}"
        layers.append((Row(text, "feedforward"), cfg.feedforward_norm))
    rows = []
    for layer, has_norm in layers:
        norm = [Row(NORMS[cfg.norm], "norm")] if has_norm and NORMS[cfg.norm] else []
        before, after = (norm, []) if cfg.norm_position == "pre" else ([], norm)
        rows += [*before, layer, *([Row("⊕", "sum", len(before) + 1)] if cfg.residual else []), *after]
    return rows


def _final_norm(cfg: Any) -> list[Row]:
    return [Row(NORMS[cfg.norm] or "LayerNorm", "norm")] if cfg.final_norm else []


def _head(cfg: Any, logits: str = "logits of the next token") -> list[Row]:
    """Return the final norm, the output head and its logits."""
    tied = "\nthe embedding table, transposed" if cfg.tie_embeddings else ""
    return [*_final_norm(cfg), Row(f"linear D {cfg.d_model} → V {cfg.vocab_size:,}{tied}", "head"), Row(logits)]


def _axes(across: tuple[float, float], rows: int) -> "Axes":
    """Return axes for columns of up to `rows` rows, in which an inch is as long upwards as across."""
    axes = blank(1.15 * (across[1] - across[0]), 1.15 * rows + 0.2).subplots()
    axes.set(xlim=across, ylim=(-0.5, rows - 0.5), aspect="equal")
    axes.set_axis_off()
    return axes


def _draw(
    axes: "Axes",
    x: float,
    below: Sequence[Row],
    block: Sequence[Row] = (),
    above: Sequence[Row] = (),
    times: int | None = None,
) -> None:
    """Draw a column of rows, from below upwards, with a frame around a block that is there several times."""
    rows = [*below, *block, *above]
    for y, row in enumerate(rows):
        if y:
            _arrow(axes, (x, y - 0.7), (x, y - 0.3))
        if row.kind in COLOURS:
            axes.barh(y, 2 * SIDE, 0.6, left=x - SIDE, color=COLOURS[row.kind], edgecolor=GREY)
        _text(axes, x, y, row.text, size=30 if row.skipped else 9)
        if row.skipped:
            side, branch = x + SIDE + 0.4, y - row.skipped - 0.45
            axes.plot([x, side, side], [branch, branch, y], color=GREY, linewidth=1)
            _arrow(axes, (side, y), (x + 0.25, y))
    if times:
        middle, left, height = len(below) + len(block) / 2 - 0.55, x - SIDE - 0.4, len(block) + 0.1
        axes.barh(middle, 2 * SIDE + 1, height, left=left, fill=False, edgecolor=GREY, linestyle="--")
        _text(axes, left - 0.35, middle, f"{times} ×", size=12)


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float], colour: str = GREY) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0})


def _text(axes: "Axes", x: float, y: float, text: str, colour: str = "black", size: int = 9) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, linespacing=1.3)
