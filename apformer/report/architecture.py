"""A diagram of a model, drawn from its Config: what a token goes through on its way to the logits, from below upwards.

Every architecture has its own drawing, a function of the Config by the name of the module. A number in a box is that of
the model; D, H, K, F, V are the axes of apformer/README.md.
"""

import textwrap
from itertools import pairwise

from apformer.settings import architecture_of

_GREY = "#555555"
_COLOURS = {  # of boxes, by what they hold
    "embedding": "#F6DDE8",
    "attention": "#FBE3CF",
    "feedforward": "#D6ECF8",
    "norm": "#F7F3C6",
    "head": "#DCE5F2",
    "cell": "#D8F0E6",
    "text": "#FFFFFF",
}
WIDTH, HEIGHT, STEP = 3.4, 0.62, 0.98  # of a box, and from one to the next above it


def pictures(settings):
    """{"architecture": Figure} of the model of a run; {} of an architecture that has no drawing."""
    name = architecture_of(settings).__name__.rpartition(".")[2]
    return {"architecture": DRAWINGS[name](settings.model)} if name in DRAWINGS else {}


def decoder(cfg):
    """The decoder-only transformer."""
    figure, axes = _canvas(7.6)
    y = _embedded(axes, 0, 0, "tokens", cfg.vocab_size, cfg, cfg.position)
    y = _stack(axes, 0, y, cfg, cfg.n_layers, [("attention", _self_attention(cfg, True)), *_feedforward(cfg)])
    y = _final_norm(axes, 0, y, cfg)
    y = _read_out(axes, 0, y, cfg.vocab_size, cfg)
    return _fitted(figure, axes, (-3.4, 3.4), y)


def encoder_decoder(cfg):
    """The encoder on the left, the decoder on the right, and what the one hands to the other."""
    figure, axes = _canvas(13.4)
    left, right = -3.6, 3.6
    y = _embedded(axes, left, 0, "source tokens", cfg.source_vocab_size, cfg, cfg.position)
    parts = [("attention", _self_attention(cfg, False)), *_feedforward(cfg)]
    y = _final_norm(axes, left, _stack(axes, left, y, cfg, cfg.n_encoder_layers, parts), cfg)
    source = y
    turned = ", rotary positions" if cfg.position == "rotary" else ""
    cross = ("attention", f"cross-attention\n{_heads(cfg)}{turned}, keys and values of the source")
    parts = [("attention", _self_attention(cfg, True)), cross, *_feedforward(cfg)]
    y = _embedded(axes, right, 0, "target tokens so far", cfg.target_vocab_size, cfg, cfg.position)
    y, places = _stack(axes, right, y, cfg, cfg.n_decoder_layers, parts, places=True)
    middle = (left + right) / 2
    axes.plot([left, left, middle, middle], [source, source + 0.45, source + 0.45, places[1]], color="#D55E00")
    _arrow(axes, (middle, places[1]), (right - WIDTH / 2, places[1]), "#D55E00")
    y = _final_norm(axes, right, y, cfg)
    y = _read_out(axes, right, y, cfg.target_vocab_size, cfg)
    return _fitted(figure, axes, (left - 3.4, right + 3.4), y)


_EQUATIONS = {
    "rnn": "$h_t = \\tanh(W x_t + b + U h_{t-1})$",
    "gru": "$r, z = \\sigma(W x_t + b + U h_{t-1})$\n$n = \\tanh(W x_t + b + r\\,(U h_{t-1} + b'))$\n"
    "$h_t = (1 - z)\\, n + z\\, h_{t-1}$",
    "lstm": "$i, f, o = \\sigma(W x_t + b + U h_{t-1})$\n$n = \\tanh(W x_t + b + U h_{t-1})$\n"
    "$c_t = f c_{t-1} + i\\, n$\n$h_t = o \\tanh(c_t)$",
}


def recurrent(cfg):
    """Three steps of a recurrent network side by side, and the equation of its cell."""
    figure, axes = _canvas(12)
    apart, times = 4.6, ("t-1", "t", "t+1", "t+2")
    state = "$h$, $c$" if cfg.cell == "lstm" else "$h$"
    for column, (time, after) in enumerate(pairwise(times)):
        x = apart * column
        _words(axes, x, 0, f"$x_{{{time}}}$", 12)
        _rise(axes, x, 0.25, STEP - HEIGHT / 2)
        _box(axes, x, STEP, f"token embedding\nV {cfg.vocab_size:,} → D {cfg.d_model}, times √D", "embedding")
        y = STEP
        for layer in range(1, cfg.n_layers + 1):
            _rise(axes, x, y + HEIGHT / 2, y + STEP - HEIGHT / 2)
            y += STEP
            _box(axes, x, y, f"{cfg.cell.upper()} cell, layer {layer}", "cell")
            _arrow(axes, (x + WIDTH / 2, y), (x + apart - WIDTH / 2, y), "#D55E00")
            _words(axes, x + apart / 2, y + 0.18, state, 10, "#D55E00")
            if not column:
                _arrow(axes, (x - apart + WIDTH / 2 + 0.2, y), (x - WIDTH / 2, y), "#D55E00")
        top = _read_out(axes, x, y + HEIGHT / 2, cfg.vocab_size, cfg, f"logits of $x_{{{after}}}$")
    below = "the same weights at every step; the state of a row has " + (
        f"{cfg.n_layers} × 2 × {cfg.d_model}" if cfg.cell == "lstm" else f"{cfg.n_layers} × {cfg.d_model}"
    )
    _words(axes, apart, -0.9, f"{below} numbers", 10)
    lines = _EQUATIONS[cfg.cell].count("\n") + 1
    _words(axes, apart, -1.35 - 0.28 * lines, _EQUATIONS[cfg.cell], 12)
    return _fitted(figure, axes, (-3.3, 2 * apart + 3.3), top, -1.5 - 0.6 * lines)


def word2vec(cfg):
    """CBOW or skip-gram: two tables, and nothing between them but a mean."""
    figure, axes = _canvas(9.5)
    given, predicted = ("context", "centre") if cfg.variant == "cbow" else ("centre", "context")
    words = {"context": ("word t - 2", "word t - 1", "word t + 1", "word t + 2"), "centre": ("word t",)}
    loss = "softmax over all words" if cfg.loss == "softmax" else f"against {cfg.negatives} words that are drawn"
    y = 1.2
    for k, word in enumerate(words[given]):
        x = 2.4 * (k - (len(words[given]) - 1) / 2)
        _words(axes, x, 0, word, 10)
        _arrow(axes, (x, 0.25), (0.35 * x, y - HEIGHT / 2))
    _box(axes, 0, y, f"table of vectors v\nV {cfg.vocab_size:,} → D {cfg.d_model}", "embedding")
    if cfg.variant == "cbow":
        _rise(axes, 0, y + HEIGHT / 2, y + STEP - HEIGHT / 2)
        y += STEP
        _box(axes, 0, y, "mean over the context", "norm")
    _rise(axes, 0, y + HEIGHT / 2, y + STEP - HEIGHT / 2)
    y += STEP
    _box(axes, 0, y, f"table of vectors u: u · h\nD {cfg.d_model} → V {cfg.vocab_size:,}", "head")
    for k, word in enumerate(words[predicted]):
        x = 2.4 * (k - (len(words[predicted]) - 1) / 2)
        _arrow(axes, (0.35 * x, y + HEIGHT / 2), (x, y + 1.15))
        _words(axes, x, y + 1.4, word, 10)
    _words(axes, 0, y + 2.0, f"loss: {loss}", 10)
    return _fitted(figure, axes, (-5, 5), y + 2.2)


DRAWINGS = {"model": decoder, "seq2seq": encoder_decoder, "recurrent": recurrent, "word2vec": word2vec}


def _self_attention(cfg, masked):
    """The words in the box of self-attention, for what the Config of this model has of it."""
    own = vars(cfg)
    sees = [f"window of {own['window']}"] if own.get("window") else []
    sees += [f"{cfg.position} positions"] if cfg.position not in ("sinusoidal", "learned", "none") else []
    sees += ["a sink"] if own.get("attention_sink") else []
    alone = "no queries and keys" if cfg.similarity == "none" else f"{cfg.similarity} scores"
    sees += [alone] if cfg.similarity != "scaled_dot" else []
    sees += [f"{own['weighting']} weights"] if own.get("weighting", "softmax") != "softmax" else []
    return f"{'masked ' * masked}self-attention\n{textwrap.fill(', '.join([_heads(cfg), *sees]), 46)}"


def _heads(cfg):
    return f"{cfg.n_heads} {'heads' if cfg.n_heads > 1 else 'head'} of {cfg.d_model // cfg.n_heads}"


def _feedforward(cfg):
    """The sub-layer in a list; none in a model without it."""
    if not vars(cfg).get("feedforward", True):
        return []
    D, F = cfg.d_model, cfg.d_ff or 4 * cfg.d_model
    return [("feedforward", f"feed-forward\nD {D} → F {F} → D {D}, {cfg.activation.replace('_', ' ')}")]


def _norm(cfg):
    return {"layer": "LayerNorm", "rms": "RMSNorm", "none": None}[vars(cfg).get("norm", "layer")]


def _embedded(axes, x, y, what, vocab_size, cfg, scheme):
    """Tokens, their embedding, and positions where they are added to it; the height above."""
    _words(axes, x, y, what, 11)
    _rise(axes, x, y + 0.25, y + STEP - HEIGHT / 2)
    y += STEP
    scaled = ", times √D" if cfg.scale_embedding else ""
    shared = ", one table for both sides" if vars(cfg).get("share_embeddings") else ""
    _box(axes, x, y, f"token embedding{shared}\nV {vocab_size:,} → D {cfg.d_model}{scaled}", "embedding")
    if scheme in ("sinusoidal", "learned"):
        _rise(axes, x, y + HEIGHT / 2, y + STEP - 0.16)
        y += STEP
        _plus(axes, x, y)
        _words(axes, x + 1.85, y, f"{scheme}\npositions", 9)
        _arrow(axes, (x + 1.1, y), (x + 0.16, y))
        return y + 0.16
    return y + HEIGHT / 2


def _stack(axes, x, y, cfg, n_layers, parts, places=False):
    """A block with its sub-layers in a frame; the height above it, and with places where each sub-layer is."""
    bottom, residual, norm = y + 0.3, vars(cfg).get("residual", True), _norm(cfg)
    before, after = (norm, None) if cfg.norm_position == "pre" else (None, norm)
    found = []
    for kind, text in parts:
        of_it = kind != "feedforward" or vars(cfg).get("feedforward_norm", True)
        boxes = [(before, "norm")] * bool(before and of_it) + [(text, kind)]
        start, first = y, True
        for words, colour in boxes:
            gap = 0.75 if first else 0.36
            _rise(axes, x, y, y + gap)
            y += gap + HEIGHT / 2
            _box(axes, x, y, words, colour)
            if colour == kind:
                found.append(y)
            y, first = y + HEIGHT / 2, False
        if residual:
            _rise(axes, x, y, y + 0.3)
            y += 0.46
            _plus(axes, x, y)
            side = x + WIDTH / 2 + 0.45
            axes.plot([x, side, side], [start + 0.45, start + 0.45, y], color=_GREY, linewidth=1)
            _arrow(axes, (side, y), (x + 0.16, y))
            y += 0.16
        if after and of_it:
            _rise(axes, x, y, y + 0.3)
            y += 0.3 + HEIGHT / 2
            _box(axes, x, y, after, "norm")
            y += HEIGHT / 2
    top = y + 0.3
    _frame(axes, x, bottom, top, f"{n_layers} ×")
    axes.plot([x, x], [y, top], color=_GREY, linewidth=1)
    return (top, found) if places else top


def _final_norm(axes, x, y, cfg):
    if not cfg.final_norm:
        return y
    _rise(axes, x, y, y + 0.36)
    y += 0.36 + HEIGHT / 2
    _box(axes, x, y, _norm(cfg) or "LayerNorm", "norm")
    return y + HEIGHT / 2


def _read_out(axes, x, y, vocab_size, cfg, what="logits of the next token"):
    """The output head on what ends at y; the height above it."""
    _rise(axes, x, y, y + 0.36)
    y += 0.36 + HEIGHT / 2
    tied = "\nthe embedding table, transposed" if vars(cfg).get("tie_embeddings") else ""
    _box(axes, x, y, f"linear D {cfg.d_model} → V {vocab_size:,}{tied}", "head")
    _rise(axes, x, y + HEIGHT / 2, y + HEIGHT / 2 + 0.36)
    _words(axes, x, y + HEIGHT / 2 + 0.6, what, 11)
    return y + HEIGHT / 2 + 0.8


def _canvas(width):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 6), dpi=120)
    FigureCanvasAgg(figure)
    return figure, figure.add_axes((0, 0, 1, 1))


def _fitted(figure, axes, across, top, bottom=-0.4):
    """The figure as high as what is in it, so that a unit is as long upwards as across."""
    axes.set(xlim=across, ylim=(bottom, top))
    axes.set_axis_off()
    width = figure.get_size_inches()[0]
    figure.set_size_inches(width, width * (top - bottom) / (across[1] - across[0]))
    return figure


def _box(axes, x, y, text, kind):
    from matplotlib.patches import FancyBboxPatch

    corner = (x - WIDTH / 2 + 0.08, y - HEIGHT / 2 + 0.08)
    style = "round,pad=0.08,rounding_size=0.12"
    box = FancyBboxPatch(corner, WIDTH - 0.16, HEIGHT - 0.16, boxstyle=style, facecolor=_COLOURS[kind], edgecolor=_GREY)
    axes.add_patch(box)
    _words(axes, x, y, text, 9)


def _frame(axes, x, bottom, top, text):
    from matplotlib.patches import FancyBboxPatch

    left, right = x - WIDTH / 2 - 0.5, x + WIDTH / 2 + 0.75
    box = FancyBboxPatch((left, bottom), right - left, top - bottom, boxstyle="round,pad=0,rounding_size=0.2")
    box.set(facecolor="none", edgecolor=_GREY, linestyle="--")
    axes.add_patch(box)
    _words(axes, left - 0.35, (bottom + top) / 2, text, 12)


def _plus(axes, x, y):
    axes.plot(x, y, "o", markersize=13, color="white", markeredgecolor=_GREY, zorder=3)
    axes.text(x, y, "+", ha="center", va="center", fontsize=11, zorder=4)


def _rise(axes, x, low, high):
    _arrow(axes, (x, low), (x, high))


def _arrow(axes, start, end, colour=_GREY):
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0})


def _words(axes, x, y, text, size, colour="black"):
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, linespacing=1.3)
