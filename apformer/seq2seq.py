"""The whole transformer: an encoder reads the source, a decoder writes the target and attends to what was read.

    m      = encoder(E_s[source] sqrt(d_model) + PE)                with rotary positions, no PE: q and k are turned
    y      = decoder(E_t[target] sqrt(d_model) + PE, m)
    logits = y W_out + b

A block of the encoder has self-attention and feed-forward; between the two, the decoder attends from the target to m.
Logits at t predict target token t + 1.

Vaswani et al. 2017, figure 1. A source token sees all of its source. A target token sees all of the source, and the
target up to itself. No token sees padding. The names are those of `model.py`. The parameters of the decoder are those
of a decoder-only model, with cross-attention.
"""

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import attention, block, config, position, stack
from apformer.layers.attention import project_source
from apformer.layers.block import Block
from apformer.layers.cache import place
from apformer.layers.embedding import Embedding, Head
from apformer.layers.masks import View, causal_mask, mask_padding
from apformer.layers.norm import LayerNorm
from apformer.layers.stack import scan


@dataclass(frozen=True)
class Config:
    """The architecture; frozen and hashable, a static argument of jit. By default the base model of the paper."""

    source_vocab_size: int = 37_000
    """Number of source tokens."""
    target_vocab_size: int = 37_000
    """Number of target tokens."""
    share_embeddings: bool = True
    """One embedding table for source and target, which then share a vocabulary."""
    d_model: int = 512
    """Width of the residual stream."""
    n_heads: int = 8
    """Number of attention heads, each d_model / n_heads wide."""
    n_encoder_layers: int = 6
    """Number of blocks of the encoder."""
    n_decoder_layers: int = 6
    """Number of blocks of the decoder."""
    d_ff: int | None = None
    """Width of the feed-forward layer. The default is 4 * d_model."""
    position: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """Position scheme, see layers/position/. With learned, source and target have a table each."""
    max_len: int = 1024
    """Number of positions in the learned tables."""
    similarity: Literal["scaled_dot", "dot", "cosine", "additive"] = "scaled_dot"
    """Formula of the attention scores, see layers/similarity.py."""
    scale_embedding: bool = True
    """Factor sqrt(d_model) on embeddings."""
    tie_embeddings: bool = True
    """Transposed embedding table of the target as the output head, instead of a matrix of its own."""
    attention_bias: bool = False
    """Biases on queries, keys, values and the output projection. The paper has none."""
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """Nonlinearity of the feed-forward layer. gelu_tanh is GPT-2's approximation."""
    norm_position: Literal["pre", "post"] = "post"
    """Place of the norms: post (after each residual sum) or pre (before each sub-layer)."""
    norm_epsilon: float = 1e-5
    """Number that LayerNorm adds to the variance, against division by 0."""
    final_norm: bool = False
    """LayerNorm after the encoder and after the decoder. Pre-norm needs it."""
    dropout: float = 0.1
    """Share of embeddings and sub-layer outputs set to 0, in training only."""

    def __post_init__(self):
        sizes = ("source_vocab_size", "target_vocab_size", "d_model", "n_heads", "d_ff", "max_len")
        config.check(self, (*sizes, "n_encoder_layers", "n_decoder_layers"), shares=("dropout",))
        config.check_heads(self)
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            sizes = f"{self.source_vocab_size} and {self.target_vocab_size}"
            raise ValueError(f"share_embeddings needs one vocabulary: the sizes {sizes} differ")
        position.check(_scheme(self), self)


def base(vocab_size):
    """The base model of Vaswani et al. 2017, table 3: one vocabulary, and one table for both sides and the read-out."""
    return Config(source_vocab_size=vocab_size, target_vocab_size=vocab_size)


def reach(cfg):
    """How many tokens back the logits depend on: None, as there is no bound."""
    return None


def max_tokens(cfg):
    """The most tokens that a source or a target may have; None if there is no such bound."""
    return position.max_tokens(_scheme(cfg), cfg.max_len)


def wants_key(cfg):
    """Whether training draws at random, as dropout does, so that `apply` is to be given a key."""
    return cfg.dropout > 0


def init(key, cfg):
    """Parameters as a plain nested dict of float32 arrays; those of the blocks are stacked on a leading layer axis."""
    keys = iter(jax.random.split(key, 10))
    tokens_BT, x_BTD, mask_BTS = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, cfg.d_model)), jnp.ones((1, 1, 1), bool)

    def side(vocab_size, n_layers, view):
        places, block_keys = position.Embedding(_scheme(cfg), cfg.max_len), jax.random.split(next(keys), n_layers)
        params = {"blocks": jax.vmap(lambda key: _block(cfg).init(key, x_BTD, view)["params"])(block_keys)}
        if vocab_size is not None:
            params["embedding"] = Embedding(vocab_size, cfg.d_model).init(next(keys), tokens_BT)["params"]
        if jax.eval_shape(places.init, key, x_BTD, tokens_BT):  # the scheme has parameters
            params["position"] = places.init(next(keys), x_BTD, tokens_BT)["params"]
        if cfg.final_norm:
            params["final_norm"] = LayerNorm(cfg.norm_epsilon).init(next(keys), x_BTD)["params"]
        return params

    with_source = View(mask_BTS, tokens_BT, source_mask_BTS=mask_BTS, source_BSD=x_BTD)
    params = {
        "encoder": side(cfg.source_vocab_size, cfg.n_encoder_layers, View(mask_BTS, tokens_BT)),
        "decoder": side(None if cfg.share_embeddings else cfg.target_vocab_size, cfg.n_decoder_layers, with_source),
    }
    if cfg.tie_embeddings:
        return params
    return params | {"head": Head(cfg.target_vocab_size, bias=False).init(next(keys), x_BTD)["params"]}


def apply(
    params,
    source_BS,
    target_BT,
    cfg,
    *,
    key=None,
    source_lengths_B=None,
    target_lengths_B=None,
    capture=(),
    remat=False,
):
    """Logits of the next target token at every position: (B, T, V). Without a key there is no dropout.

    source_lengths_B, target_lengths_B: rows are right-padded; what stands beyond a row's length changes nothing.
    capture: any of "encoder_attention" (weights, LBHSS), "decoder_attention" (LBHTT), "cross_attention" (LBHTS),
    "encoder_residual" and "decoder_residual" (the stream before, between and after the blocks, (L+1)BSD, (L+1)BTD);
    then (logits_BTV, {name: array}) is returned. Ids outside the vocabularies are undefined. Computes in the dtype of
    the parameters; softmax and norms in at least float32. Raises ValueError for tokens that are no rows, where learned
    positions end, and for an unknown name to capture. remat: a gradient computes the inside of the blocks again.
    """
    config.check_tokens("target_BT", target_BT)
    config.check_capture(capture, tuple(_captures("encoder") | _captures("decoder")))
    encoder_key, decoder_key = (None, None) if key is None else jax.random.split(key)
    source_BSD, mask_BTS, read = _encode(params, source_BS, cfg, source_lengths_B, encoder_key, capture, remat)
    target_BT, _ = mask_padding(target_BT, target_lengths_B)
    positions_BT = jnp.arange(target_BT.shape[1], dtype=jnp.int32)[None]
    x_BTD = _embed(params, "decoder", target_BT, positions_BT, cfg)
    view = View(causal_mask(positions_BT, positions_BT), positions_BT, source_mask_BTS=mask_BTS, source_BSD=source_BSD)
    y_BTD, written = _blocks(params, "decoder", x_BTD, cfg, decoder_key, capture, view, remat)
    logits_BTV = read_out(params, y_BTD, cfg)
    return (logits_BTV, read | written) if capture else logits_BTV


def unstack(params):
    """The parameters with the decoder's blocks as a list of layers, see layers.stack."""
    return params | {"decoder": stack.unstack(params["decoder"])}


def encode(params, source_BS, cfg, *, source_lengths_B=None, key=None):
    """What the encoder makes of the sources: (B, S, D). Without a key there is no dropout.

    source_lengths_B: rows are right-padded; the vectors beyond a row's length mean nothing.
    """
    return _encode(params, source_BS, cfg, source_lengths_B, key, ())[0]


def init_cache(params, source_BS, cfg, length, source_lengths_B=None):
    """The sources, encoded once, and room for targets of up to `length` tokens: a plain dict, batch first in each leaf.

    Of the sources it holds the keys and values of each layer's cross-attention, which every token to come reads.
    """
    source_BSD, mask_BTS, _ = _encode(params, source_BS, cfg, source_lengths_B, None, ())
    B = len(source_BS)
    empty_BHSK = jnp.zeros((B, cfg.n_heads, length, cfg.d_model // cfg.n_heads), source_BSD.dtype)
    scheme, blocks = _scheme(cfg), unstack(params)["decoder"]["blocks"]
    return {
        "length": jnp.zeros(B, jnp.int32),
        "position": jnp.full((B, length), -1, jnp.int32),
        "source_mask": mask_BTS,
        "source": [project_source(layer["cross_attention"], source_BSD, scheme) for layer in blocks],
        "layers": [{"key": empty_BHSK, "value": empty_BHSK.copy()} for _ in blocks],
    }


def extend(params, tokens_BT, cache, cfg, *, lengths_B=None):
    """Logits of new target tokens after those in the cache, and the cache with them: (logits_BTV, cache).

    Serves prefill and single steps alike. lengths_B: how many of a row's new tokens are real, possibly none. A row must
    not outgrow the cache, nor the max_len of learned positions. Raises ValueError for tokens that are no rows, and for
    more of them than slots.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    B, T = tokens_BT.shape
    slots = cache["position"].shape[1]
    if T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    lengths_B = jnp.full(B, T, jnp.int32) if lengths_B is None else lengths_B
    real_BT, positions_BT, cached_BS, positions_BS, write = place(cache, T, lengths_B, None)
    mask_BTS, source_mask_BTS = causal_mask(positions_BT, positions_BS), cache["source_mask"]
    view = View(mask_BTS, positions_BT, write=write, source_mask_BTS=source_mask_BTS)
    x_BTD = _embed(params, "decoder", jnp.where(real_BT, tokens_BT, 0), positions_BT, cfg)
    layers, blocks = [], unstack(params)["decoder"]["blocks"]
    for layer_params, *caches in zip(blocks, cache["layers"], cache["source"], strict=True):
        x_BTD, _, layer_cache = _block(cfg).apply({"params": layer_params}, x_BTD, view, *caches)
        layers.append(layer_cache)
    new = {"length": cache["length"] + lengths_B, "position": cached_BS, "layers": layers}
    return read_out(params, x_BTD, cfg), cache | new


def _encode(params, source_BS, cfg, lengths_B, key, capture, remat=False):
    """(source_BSD, which of it is no padding BTS, what was captured)."""
    config.check_tokens("source_BS", source_BS)
    source_BS, real_BS = mask_padding(source_BS, lengths_B)
    mask_BTS, positions_BS = real_BS[:, None], jnp.arange(source_BS.shape[1], dtype=jnp.int32)[None]
    x_BSD = _embed(params, "encoder", source_BS, positions_BS, cfg)
    y_BSD, captured = _blocks(params, "encoder", x_BSD, cfg, key, capture, View(mask_BTS, positions_BS), remat)
    return final_norm(params["encoder"], y_BSD, cfg), mask_BTS, captured


def _captures(side):
    """What can be captured of one side: {its name: the name in a block}."""
    names = {f"{side}_attention": "attention", f"{side}_residual": "residual"}
    return names | ({"cross_attention": "cross_attention"} if side == "decoder" else {})


def _blocks(params, side, x_BTD, cfg, key, capture, view, remat=False):
    """(what the blocks of one side make of its embeddings, {name: what was captured})."""
    names, view = _captures(side), replace(view, training=key is not None)
    if key is not None:
        x_BTD = nn.Dropout(cfg.dropout, deterministic=False).apply({}, x_BTD, rngs={"dropout": key})

    def layer(layer_params, x_BTD, rngs, number):
        y_BTD, weights, _ = _block(cfg).apply({"params": layer_params}, x_BTD, view, rngs=rngs)
        return y_BTD, weights

    asked = [names[name] for name in capture if name in names]
    y_BTD, captured = scan(layer, params[side]["blocks"], x_BTD, key, asked, remat)
    return y_BTD, {name: captured[names[name]] for name in capture if name in names}


def _block(cfg):
    places = {"position": cfg.position, "position_options": _scheme(cfg)}
    heads = attention.Config(
        n_heads=cfg.n_heads, bias=cfg.attention_bias, output_projection=True, similarity=cfg.similarity, **places
    )
    return Block(
        block.Config(
            attention=heads,
            d_ff=cfg.d_ff or 4 * cfg.d_model,
            activation=cfg.activation,
            norm_position=cfg.norm_position,
            norm_epsilon=cfg.norm_epsilon,
            dropout=cfg.dropout,
        )
    )


def _scheme(cfg):
    return position.load(cfg.position)()


def _table(params, side):
    """The embedding table of one side, which may be that of both."""
    return (params[side].get("embedding") or params["encoder"]["embedding"])["table"]


def _embed(params, side, tokens_BT, positions_BT, cfg):
    T, most = tokens_BT.shape[1], max_tokens(cfg)
    if most is not None and T > most:
        raise ValueError(f"{T} tokens, but {cfg.position} positions end at max_len {most}")
    table_VD = _table(params, side)
    embedding = Embedding(len(table_VD), cfg.d_model, cfg.scale_embedding)
    x_BTD = embedding.apply({"params": {"table": table_VD}}, tokens_BT)
    places, own = position.Embedding(_scheme(cfg), cfg.max_len), params[side].get("position", {})
    return places.apply({"params": own}, x_BTD, positions_BT)


def final_norm(params, x_BTD, cfg):
    """The norm after the last block of a side, whose parameters these are; x itself where there is none."""
    if not cfg.final_norm:
        return x_BTD
    return LayerNorm(cfg.norm_epsilon).apply({"params": params["final_norm"]}, x_BTD)


def read_out(params, x_BTD, cfg):
    """The logits of what the decoder's blocks made of its tokens."""
    x_BTD = final_norm(params["decoder"], x_BTD, cfg)
    table_VD = _table(params, "decoder") if cfg.tie_embeddings else None
    return Head(cfg.target_vocab_size, bias=False).apply({"params": params.get("head", {})}, x_BTD, table_VD)
