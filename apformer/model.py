"""The decoder-only transformer: embed, N blocks of masked self-attention and feed-forward, read out the next token.

    x_0     = E[tokens] + PE
    x_{l+1} = x_l + attention(norm(x_l)) + feedforward(norm(.))          l = 0 .. n_layers - 1
    logits  = norm(x_L) W_out + b                                        logits at t predict token t + 1

Vaswani et al. 2017 without the encoder, as in GPT-2 (Radford et al. 2019). The defaults of `Config` are the sketch the
project began from: one pre-norm block, one head, no projection after it, sinusoidal positions, no final norm.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import attention, block, config, position
from apformer.layers.cache import gather, place
from apformer.layers.embedding import Embedding, Head
from apformer.layers.masks import View, mask_padding
from apformer.layers.norm import LayerNorm, RMSNorm
from apformer.layers.position import names as position_names
from apformer.layers.stack import scan, unstack
from apformer.layers.window import chunks, narrow, offsets

CAPTURES = ("attention", "residual")  # what `apply` can show of its inside


@dataclass(frozen=True)
class Config:
    """Size and parts of the model; frozen and hashable, a static argument of jit."""

    vocab_size: int = 11
    """Number of tokens."""
    d_model: int = 64
    """Width of the residual stream."""
    n_heads: int = 1
    """Number of attention heads, each d_model / n_heads wide."""
    n_layers: int = 1
    """Number of blocks."""
    d_ff: int | None = None
    """Width of the feed-forward layer. With None, 4 * d_model."""
    max_len: int = 1024
    """Number of positions in the learned table, and of offsets in the relative table without a window."""
    window: int | None = None
    """Number of tokens that a query may see, itself included. With None, all before it."""
    position: Literal[*position_names()] = "sinusoidal"
    """Position scheme: a file of layers/position/."""
    position_options: Any = None
    """Options of the position scheme. The default is those of its file."""
    similarity: Literal["scaled_dot", "dot", "cosine", "additive", "none"] = "scaled_dot"
    """Formula of the attention scores, see layers/similarity.py."""
    weighting: Literal["softmax", "geometric"] = "softmax"
    """Way from scores to weights, see layers/weighting.py."""
    scale_embedding: bool = False
    """Factor sqrt(d_model) on embeddings."""
    tie_embeddings: bool = False
    """Transposed embedding table as the output head, instead of a matrix of its own."""
    attention_bias: bool = False
    """Biases on queries, keys, values and the output projection."""
    output_projection: bool = False
    """Linear map after the heads are joined."""
    attention_sink: bool = False
    """One more key for each head, with a learned score and the value 0."""
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """Nonlinearity of the feed-forward layer. gelu_tanh is GPT-2's approximation."""
    feedforward: bool = True
    """Feed-forward sub-layer in each block. Without it a block is its attention."""
    feedforward_bias: bool = True
    """Biases in the feed-forward layer."""
    feedforward_norm: bool = True
    """LayerNorm for the feed-forward layer, beside the one for attention."""
    norm: Literal["layer", "rms", "none"] = "layer"
    """Normalisation: layer (LayerNorm), rms (RMSNorm), or none."""
    norm_bias: bool = True
    """Bias in each LayerNorm, beside its gain."""
    norm_position: Literal["pre", "post"] = "pre"
    """Place of the norms: pre (before each sub-layer) or post (after each residual sum)."""
    residual: bool = True
    """Residual connection: the input of a sub-layer is added to its output."""
    norm_epsilon: float = 1e-5
    """Number that LayerNorm adds to the variance, against division by 0."""
    final_norm: bool = False
    """Norm before the output head: RMSNorm with norm rms, else LayerNorm."""
    head_bias: bool = True
    """Bias on the logits."""
    dropout: float = 0.0
    """Share of embeddings and sub-layer outputs set to 0, in training only."""
    attention_dropout: float = 0.0
    """Share of attention weights set to 0, in training only."""

    def __post_init__(self):
        sizes = ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff", "max_len", "window")
        config.check(self, sizes, shares=("dropout", "attention_dropout"))
        config.check_heads(self)
        config.check_weighting(self)
        Scheme = position.load(self.position)
        if self.position_options is None:
            object.__setattr__(self, "position_options", Scheme())
        if not isinstance(self.position_options, Scheme):
            other = f"position_options {self.position_options} are not those of position {self.position}"
            raise ValueError(f"{other}: give its own, or None for its defaults")
        position.check(self.position_options, self)


def reach(cfg):
    """How many tokens back the logits depend on, whatever their positions; None if there is no such bound."""
    layer = position.reach(cfg.position_options, cfg.window)
    return None if layer is None else cfg.n_layers * layer


def max_tokens(cfg):
    """The most tokens a row may have; None if there is no such bound."""
    return position.max_tokens(cfg.position_options, cfg.max_len)


def farthest(cfg, period):
    """How many tokens back a layer reads at most in text of this period; None if it reads keys at many offsets."""
    return position.farthest(cfg.position_options, cfg.window, period)


def wants_key(cfg):
    """Whether training draws at random, as dropout does, so that `apply` is to be given a key."""
    return cfg.dropout > 0 or cfg.attention_dropout > 0 or position.wants_key(cfg.position_options)


def init(key, cfg):
    """Parameters as a plain nested dict of float32 arrays; those of the blocks are stacked on a leading layer axis."""
    embedding_key, position_key, block_key, norm_key, head_key = jax.random.split(key, 5)
    tokens_BT = jnp.zeros((1, 1), jnp.int32)
    x_BTD = jnp.zeros((1, 1, cfg.d_model))
    view = position.layer(cfg.position_options, _view(cfg, tokens_BT, tokens_BT), 0)

    params = {
        "embedding": _embedding(cfg).init(embedding_key, tokens_BT)["params"],
        "blocks": jax.vmap(lambda key: _block(cfg).init(key, x_BTD, view)["params"])(
            jax.random.split(block_key, cfg.n_layers)
        ),
    }
    if places := _positions(cfg).init(position_key, x_BTD, tokens_BT):
        params["position"] = places["params"]
    if cfg.final_norm:
        params["final_norm"] = _final_norm(cfg).init(norm_key, x_BTD)["params"]
    head = Head(cfg.vocab_size, cfg.head_bias).init(head_key, x_BTD, _tied_table(params, cfg))
    return params | ({"head": head["params"]} if head else {})


def apply(params, tokens_BT, cfg, *, key=None, lengths_B=None, positions_BT=None, capture=(), remat=False, plain=False):
    """Logits of the next token at every position: (B, T, V). Without a key there is no dropout.

    lengths_B: rows are right-padded; what stands beyond a row's length changes nothing.
    positions_BT: positions other than 0, 1, 2 ...; they must increase along a row.
    capture: any of "attention" (weights, LBHTS) and "residual" (the stream before, between and after the blocks,
    (L+1)BTD); then (logits_BTV, {name: array}) is returned. remat: a gradient computes the inside of a block anew,
    which takes less memory and more time. plain: attention within a window is a masked square, as where it is captured.

    Computes in the dtype of the parameters; softmax and norms in at least float32. Ids outside the vocabulary are
    undefined. Raises ValueError for tokens that are no rows, for more of them than `max_tokens`, and for an unknown
    name to capture.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    config.check_capture(capture, CAPTURES)
    T, most = tokens_BT.shape[1], max_tokens(cfg)
    if most is not None and positions_BT is None and T > most:
        raise ValueError(f"{T} tokens, but {cfg.position} positions end at max_len {most}")
    tokens_BT, _ = mask_padding(tokens_BT, lengths_B)
    whole = plain or "attention" in capture or not position.sees_window_alone(cfg.position_options)
    side_by_side = not whole and positions_BT is None and narrow.serve(cfg, *tokens_BT.shape, key is not None)
    # One row of positions serves all: masks and biases are then made once.
    positions_BT = jnp.arange(T)[None] if positions_BT is None else positions_BT
    chunk = None if whole else chunks.size(T, cfg.window)
    view = narrow.view(cfg.window) if side_by_side else _view(cfg, tokens_BT, positions_BT, chunk)
    x_BTD = _embed(params, tokens_BT, positions_BT, cfg)
    if key is not None:
        x_BTD = nn.Dropout(cfg.dropout, deterministic=False).apply({}, x_BTD, rngs={"dropout": key})

    def layer(layer_params, x_BTD, rngs, number):
        seen = position.layer(cfg.position_options, replace(view, training=key is not None), number)
        y_BTD, weights, _ = _block(cfg).apply({"params": layer_params}, x_BTD, seen, rngs=rngs)
        return y_BTD, weights

    y_BTD, captured = scan(layer, params["blocks"], x_BTD, key, capture, remat)
    logits_BTV = _read_out(params, y_BTD, cfg)
    return (logits_BTV, captured) if capture else logits_BTV


def init_cache(cfg, batch_size, length, dtype=jnp.float32):
    """An empty cache for rows of up to `length` tokens: a plain dict, batch first in every leaf.

    A window of the nearest tokens needs only `window` slots, and rows may then outgrow `length`. So may rows of which a
    layer reads a few offsets, if `length` is at least `farthest` and the tokens of one call of `extend` together.
    """
    slots = length if cfg.window is None else min(cfg.window, length)
    shape_BHSK = (batch_size, cfg.n_heads, slots, cfg.d_model // cfg.n_heads)
    return {
        "length": jnp.zeros(batch_size, jnp.int32),
        "position": jnp.full((batch_size, slots), -1, jnp.int32),
        "scheme": position.init_cache(cfg.position_options, batch_size),
        "layers": [{name: jnp.zeros(shape_BHSK, dtype) for name in ("key", "value")} for _ in range(cfg.n_layers)],
    }


def extend(params, tokens_BT, cache, cfg, *, lengths_B=None):
    """Logits of new tokens after those in the cache, and the cache with them: (logits_BTV, cache).

    Serves prefill and single steps alike. lengths_B: how many of a row's new tokens are real, possibly none. A cache
    needs a slot for each token of a row, or of a window, and learned positions end at max_len: beyond that the logits
    are wrong. Raises ValueError for tokens that are no rows, and for more in one call than slots without a window.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    (B, T), slots, scheme = tokens_BT.shape, cache["position"].shape[1], cfg.position_options
    if cfg.window is None and T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    lengths_B = jnp.full(B, T, jnp.int32) if lengths_B is None else lengths_B
    real_BT, positions_BT, cached_BS, positions_BS, write = place(cache, T, lengths_B, cfg.window)
    x_BTD = _embed(params, jnp.where(real_BT, tokens_BT, 0), positions_BT, cfg)
    found, scheme_cache = position.read(scheme, jnp.where(real_BT, tokens_BT, -1), positions_BT, cache["scheme"])
    if (offset_BTO := position.offsets(scheme, cfg.window, found)) is not None:  # a token is a row, with its keys
        positions_BS, write = gather(write, cached_BS, positions_BT, offset_BTO)
        positions_BT, found, x_BTD = (x.reshape(B * T, 1, *x.shape[2:]) for x in (positions_BT, found, x_BTD))
    mask_BTS, found = position.mask(scheme, positions_BT, positions_BS, cfg.window, found)
    view, layers = View(mask_BTS, positions_BT, positions_BS, found, write=write, cached_BS=cached_BS), []
    view = offsets.cut(view, real_BT, cache, cfg.window) if offsets.serve(cfg, T) else view
    for number, layer_params in enumerate(unstack(params)["blocks"]):
        seen, layer_cache = position.layer(scheme, view, number), cache["layers"][number]
        x_BTD, _, layer_cache = _block(cfg).apply({"params": layer_params}, x_BTD, seen, layer_cache)
        layers.append(layer_cache)
    new = {"length": cache["length"] + lengths_B, "position": cached_BS, "scheme": scheme_cache, "layers": layers}
    return _read_out(params, x_BTD, cfg).reshape(B, T, -1), new


def _view(cfg, tokens_BT, positions_BT, chunk=None):
    """What all layers of a pass without a cache see."""
    found, _ = position.read(cfg.position_options, tokens_BT, positions_BT, None)
    if chunk is None:
        mask_BTS, found = position.mask(cfg.position_options, positions_BT, positions_BT, cfg.window, found)
    else:
        mask_BTS = chunks.mask(positions_BT, chunk, cfg.window)
    return View(mask_BTS, positions_BT, positions_BT, found, chunk=chunk)


def _embedding(cfg):
    return Embedding(cfg.vocab_size, cfg.d_model, cfg.scale_embedding)


def _positions(cfg):
    return position.Embedding(cfg.position_options, cfg.max_len)


def _block(cfg):
    heads = attention.Config(
        n_heads=cfg.n_heads,
        bias=cfg.attention_bias,
        output_projection=cfg.output_projection,
        sink=cfg.attention_sink,
        similarity=cfg.similarity,
        weighting=cfg.weighting,
        dropout=cfg.attention_dropout,
        window=cfg.window,
        max_len=cfg.max_len,
        position=cfg.position,
        position_options=cfg.position_options,
    )
    return block.Block(
        block.Config(
            attention=heads,
            d_ff=cfg.d_ff or 4 * cfg.d_model,
            activation=cfg.activation,
            feedforward=cfg.feedforward,
            feedforward_bias=cfg.feedforward_bias,
            feedforward_norm=cfg.feedforward_norm,
            norm=cfg.norm,
            norm_bias=cfg.norm_bias,
            norm_position=cfg.norm_position,
            norm_epsilon=cfg.norm_epsilon,
            residual=cfg.residual,
            dropout=cfg.dropout,
        )
    )


def _final_norm(cfg):
    return RMSNorm(cfg.norm_epsilon) if cfg.norm == "rms" else LayerNorm(cfg.norm_epsilon, cfg.norm_bias)


def _tied_table(params, cfg):
    return params["embedding"]["table"] if cfg.tie_embeddings else None


def _embed(params, tokens_BT, positions_BT, cfg):
    x_BTD = _embedding(cfg).apply({"params": params["embedding"]}, tokens_BT)
    return _positions(cfg).apply({"params": params.get("position", {})}, x_BTD, positions_BT)


def _read_out(params, x_BTD, cfg):
    if cfg.final_norm:
        x_BTD = _final_norm(cfg).apply({"params": params["final_norm"]}, x_BTD)
    head = Head(cfg.vocab_size, cfg.head_bias)
    return head.apply({"params": params.get("head", {})}, x_BTD, _tied_table(params, cfg))
