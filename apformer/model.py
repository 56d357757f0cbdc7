"""The decoder-only transformer: embed, N blocks of masked self-attention and feed-forward, read out the next token.

    x_0     = E[tokens] + PE
    x_{l+1} = x_l + attention(norm(x_l)) + feedforward(norm(.))          l = 0 .. n_layers - 1
    logits  = norm(x_L) W_out + b                                        logits at t predict token t + 1

Vaswani et al. 2017 without the encoder, as in GPT-2 (Radford et al. 2019). The defaults of `Config` are the sketch the
project began from: one pre-norm block, one head, no projection after it, sinusoidal positions, no final norm.
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import config, period
from apformer.layers.attention import causal_mask, unpadded
from apformer.layers.block import Block
from apformer.layers.cache import place
from apformer.layers.embedding import Embedding, Head
from apformer.layers.norm import LayerNorm
from apformer.layers.position import LearnedPosition, sinusoidal
from apformer.layers.stack import scan, unstack


@dataclass(frozen=True)
class Config:
    """The architecture; frozen and hashable, a static argument of jit."""

    vocab_size: int = 11
    """Number of tokens."""
    d_model: int = 64
    """Width of the residual stream."""
    n_heads: int = 1
    """Attention heads, each d_model / n_heads wide."""
    n_layers: int = 1
    """Blocks."""
    d_ff: int | None = None
    """Width of the feed-forward layer; 4 * d_model if not given."""
    max_len: int = 1024
    """Positions in the learned table, and offsets in the relative table when there is no window."""
    window: int | None = None
    """Tokens a query may see, itself included; all before it if not given. Periodic positions: see layers/period.py."""
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "periodic", "none"] = "sinusoidal"
    """How positions enter."""
    separator: int = 10
    """The token that ends a term (periodic positions)."""
    look_between: int = 0
    """Heads that see all tokens since the same place a term before (periodic positions)."""
    look_noise: float = 0.0
    """Standard deviation of noise on the scores of these heads, one number for each key, while training."""
    look_sharpness: float = 1.0
    """What the scores of these heads are multiplied by, except while training."""
    similarity: Literal["scaled_dot", "dot", "cosine", "additive", "geometric"] = "scaled_dot"
    """Attention scores, see layers/attention.py; geometric: those of scaled_dot, with shares instead of a softmax."""
    scale_embedding: bool = False
    """Multiply embeddings by sqrt(d_model)."""
    tie_embeddings: bool = False
    """Read out with the transposed embedding table."""
    attention_bias: bool = False
    """Biases on queries, keys, values and the output projection."""
    output_projection: bool = False
    """A linear map after the heads are joined."""
    attention_sink: bool = False
    """One more key for each head, of learned score and value 0."""
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """Of the feed-forward layer."""
    norm: Literal["layer", "none"] = "layer"
    """LayerNorm with gain and bias, or nothing."""
    norm_position: Literal["pre", "post"] = "pre"
    """Before each sub-layer, or after each residual sum."""
    norm_epsilon: float = 1e-5
    """Added to the variance."""
    final_norm: bool = False
    """Normalise before the output head."""
    head_bias: bool = True
    """A bias on the logits."""
    dropout: float = 0.0
    """On embeddings and on each sub-layer's output, while training."""

    def __post_init__(self):
        config.check(self, ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff", "max_len", "window"))
        config.check_attention(self)


def init(key, cfg):
    """Parameters as a plain nested dict of float32 arrays; those of the blocks are stacked on a leading layer axis."""
    embedding_key, position_key, block_key, norm_key, head_key = jax.random.split(key, 5)
    tokens_BT = jnp.zeros((1, 1), jnp.int32)
    x_BTD = jnp.zeros((1, 1, cfg.d_model))

    def init_block(key):
        sight = _sight(cfg, tokens_BT, tokens_BT, tokens_BT)
        return _block(cfg).init(key, x_BTD, tokens_BT, tokens_BT, *sight)["params"]

    params = {
        "embedding": _embedding(cfg).init(embedding_key, tokens_BT)["params"],
        "blocks": jax.vmap(init_block)(jax.random.split(block_key, cfg.n_layers)),
    }
    if cfg.position == "learned":
        params["position"] = LearnedPosition(cfg.max_len, cfg.d_model).init(position_key, tokens_BT)["params"]
    if cfg.final_norm:
        params["final_norm"] = LayerNorm(cfg.norm_epsilon).init(norm_key, x_BTD)["params"]
    head = Head(cfg.vocab_size, cfg.head_bias).init(head_key, x_BTD, _tied_table(params, cfg))
    return params | ({"head": head["params"]} if head else {})


def apply(params, tokens_BT, cfg, *, key=None, lengths_B=None, positions_BT=None, capture=(), remat=False):
    """Logits of the next token at every position: (B, T, V). Without a key there is no dropout.

    lengths_B: rows are right-padded; what stands beyond a row's length changes nothing.
    positions_BT: positions other than 0, 1, 2 ...; they must increase along a row.
    capture: any of "attention" (weights, LBHTS) and "residual" (the stream before, between and after the blocks,
    (L+1)BTD); then (logits_BTV, {name: array}) is returned. Ids outside the vocabulary are undefined. Computes in the
    dtype of the parameters; softmax and norms in at least float32. remat: a gradient computes the inside of a block
    anew instead of keeping it, which takes less memory and more time.
    """
    _, T = tokens_BT.shape
    if cfg.position == "learned" and positions_BT is None and T > cfg.max_len:
        raise ValueError(f"{T} tokens, but learned positions end at max_len {cfg.max_len}")
    tokens_BT, _ = unpadded(tokens_BT, lengths_B)
    # One row of positions serves all: masks and biases are then made once.
    positions_BT = jnp.arange(T)[None] if positions_BT is None else positions_BT
    period_BT = period.periods(tokens_BT, positions_BT - positions_BT[:, :1], cfg.separator)
    sight = _sight(cfg, positions_BT, positions_BT, period_BT)
    x_BTD = _embed(params, tokens_BT, positions_BT, cfg)
    if key is not None:
        x_BTD = nn.Dropout(cfg.dropout, deterministic=False).apply({}, x_BTD, rngs={"dropout": key})

    def block(layer_params, x_BTD, rngs):
        y_BTD, weights_BHTS, _ = _block(cfg).apply(
            {"params": layer_params}, x_BTD, positions_BT, positions_BT, *sight, deterministic=key is None, rngs=rngs
        )
        return y_BTD, {"attention": weights_BHTS}

    y_BTD, captured = scan(block, params["blocks"], x_BTD, key, capture, remat)
    logits_BTV = _read_out(params, y_BTD, cfg)
    return (logits_BTV, captured) if capture else logits_BTV


def init_cache(cfg, batch_size, length, dtype=jnp.float32):
    """An empty cache for rows of up to `length` tokens: a plain dict, batch first in every leaf.

    A window of the nearest tokens needs only `window` slots, and rows may then outgrow `length`; others may not.
    """
    slots = length if _ring(cfg) is None else min(cfg.window, length)
    shape_BHSK = (batch_size, cfg.n_heads, slots, cfg.d_model // cfg.n_heads)
    return {
        "length": jnp.zeros(batch_size, jnp.int32),
        "position": jnp.full((batch_size, slots), -1, jnp.int32),
        "period": jnp.zeros(batch_size, jnp.int32),
        "layers": [{name: jnp.zeros(shape_BHSK, dtype) for name in ("key", "value")} for _ in range(cfg.n_layers)],
    }


def extend(params, tokens_BT, cache, cfg, *, lengths_B=None):
    """Logits of new tokens after those in the cache, and the cache with them: (logits_BTV, cache).

    Serves prefill and single steps alike. lengths_B: how many of a row's new tokens are real, possibly none. A row must
    not outgrow a cache that has fewer slots than the window, nor the max_len of learned positions.
    """
    B, T = tokens_BT.shape
    slots = cache["position"].shape[1]
    if _ring(cfg) is None and T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    lengths_B = jnp.full(B, T, jnp.int32) if lengths_B is None else lengths_B
    real_BT, positions_BT, cached_BS, positions_BS, write = place(
        cache["position"], cache["length"], T, lengths_B, _ring(cfg)
    )
    period_BT = period.periods(jnp.where(real_BT, tokens_BT, -1), positions_BT, cfg.separator, cache["period"])
    sight = _sight(cfg, positions_BT, positions_BS, period_BT)
    x_BTD = _embed(params, jnp.where(real_BT, tokens_BT, 0), positions_BT, cfg)
    layers = []
    for layer_params, memory in zip(unstack(params)["blocks"], cache["layers"], strict=True):
        x_BTD, _, memory = _block(cfg).apply(
            {"params": layer_params}, x_BTD, positions_BT, positions_BS, *sight, memory, write
        )
        layers.append(memory)
    new = {"length": cache["length"] + lengths_B, "position": cached_BS, "period": period_BT[:, -1], "layers": layers}
    return _read_out(params, x_BTD, cfg), new


def _ring(cfg):
    """How many slots of the cache form a ring; None if all tokens are kept."""
    return None if cfg.position == "periodic" else cfg.window


def _sight(cfg, positions_BT, positions_BS, period_BT):
    """What a query sees: (mask_BTS, and for periodic positions which descriptions fit a key, fits_BTSC)."""
    if cfg.position != "periodic":
        return causal_mask(positions_BT, positions_BS, cfg.window), None
    fits_BTSC = period.describe(positions_BT, positions_BS, period_BT, cfg.window)
    return fits_BTSC[..., : None if cfg.look_between else -1].any(-1), fits_BTSC


def _embedding(cfg):
    return Embedding(cfg.vocab_size, cfg.d_model, cfg.scale_embedding)


def _block(cfg):
    return Block(
        n_heads=cfg.n_heads,
        d_ff=cfg.d_ff or 4 * cfg.d_model,
        activation=cfg.activation,
        attention_bias=cfg.attention_bias,
        output_projection=cfg.output_projection,
        attention_sink=cfg.attention_sink,
        similarity=cfg.similarity,
        position=cfg.position,
        offsets=cfg.window or cfg.max_len,
        look_between=cfg.look_between,
        noise=cfg.look_noise,
        sharpness=cfg.look_sharpness,
        norm=cfg.norm,
        norm_position=cfg.norm_position,
        norm_epsilon=cfg.norm_epsilon,
        dropout=cfg.dropout,
    )


def _tied_table(params, cfg):
    return params["embedding"]["table"] if cfg.tie_embeddings else None


def _embed(params, tokens_BT, positions_BT, cfg):
    x_BTD = _embedding(cfg).apply({"params": params["embedding"]}, tokens_BT)
    if cfg.position == "sinusoidal":
        x_BTD = x_BTD + sinusoidal(positions_BT, cfg.d_model, x_BTD.dtype)
    if cfg.position == "learned":
        positions = LearnedPosition(cfg.max_len, cfg.d_model)
        x_BTD = x_BTD + positions.apply({"params": params["position"]}, positions_BT)
    return x_BTD


def _read_out(params, x_BTD, cfg):
    if cfg.final_norm:
        x_BTD = LayerNorm(cfg.norm_epsilon).apply({"params": params["final_norm"]}, x_BTD)
    head = Head(cfg.vocab_size, cfg.head_bias)
    return head.apply({"params": params.get("head", {})}, x_BTD, _tied_table(params, cfg))
