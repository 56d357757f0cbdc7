"""The whole transformer: an encoder reads the source, a decoder writes the target and attends to the encoded source.

    m      = encoder(E_s[source] sqrt(d_model) + PE)                with rotary positions, no PE: q and k are rotated
    y      = decoder(E_t[target] sqrt(d_model) + PE, m)
    logits = y W_out

A block of the encoder has self-attention and feed-forward; between the two, the decoder attends from the target to m.
Logits at t predict target token t + 1.

Vaswani et al. 2017, figure 1. A source token sees all of its source. A target token sees all of the source, and the
target up to itself. No token sees padding. The functions have the names of those of `model.py`. The parameters of the
decoder are those of a decoder-only model, with cross-attention.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from apformer import model
from apformer.layers import Cache, Params, Tokens, block, config, embedding, listed, position
from apformer.layers.cache import place
from apformer.layers.cross_attention import Source, project_source
from apformer.layers.embedding import Embedding, Head
from apformer.layers.masks import View, mask_padding, whole_view
from apformer.layers.norm import norm_of

_CAPTURES = {  # names that `apply` can capture, by side
    "encoder": ("encoder_attention", "encoder_residual"),
    "decoder": ("decoder_attention", "decoder_residual", "cross_attention"),
}


@dataclass(frozen=True)
class Config:
    """The architecture; frozen and hashable, a static argument of jit. Config() is the base model of the paper.

    Attributes:
        source_vocab_size: Number of source tokens. A run takes that of its vocabulary.
        target_vocab_size: Number of target tokens. A run takes that of its vocabulary.
        share_embeddings: One embedding table for source and target, which then share a vocabulary.
        d_model: Width of the residual stream.
        n_heads: Number of attention heads, each d_model / n_heads wide.
        n_encoder_layers: Number of blocks of the encoder.
        n_decoder_layers: Number of blocks of the decoder.
        d_ff: Width of the feed-forward layer. The default is 4 * d_model.
        position: Position scheme, see layers/position/. With learned, source and target have a table each.
        max_len: Number of positions in the learned tables.
        similarity: Formula of the attention scores: a file of layers/similarity/.
        scale_embedding: Factor sqrt(d_model) on embeddings.
        tie_embeddings: Transposed embedding table of the target as the output head, instead of a matrix of its own.
        attention_bias: Biases on queries, keys, values and the output projection. The paper has none.
        activation: Nonlinearity of the feed-forward layer. gelu_tanh is GPT-2's approximation.
        norm_position: Place of the norms: post (after each residual sum) or pre (before each sub-layer).
        norm_epsilon: Number that LayerNorm adds to the variance, against division by 0.
        final_norm: LayerNorm after the encoder and after the decoder. Pre-norm needs it.
        dropout: Share of embeddings and sub-layer outputs set to 0, in training only.
    """

    source_vocab_size: int = 37_000
    target_vocab_size: int = 37_000
    share_embeddings: bool = True
    d_model: int = 512
    n_heads: int = 8
    n_encoder_layers: int = 6
    n_decoder_layers: int = 6
    d_ff: int | None = None
    position: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    max_len: int = 1024
    similarity: config.Similarity = "scaled_dot"
    scale_embedding: bool = True
    tie_embeddings: bool = True
    attention_bias: bool = False
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    norm_position: Literal["pre", "post"] = "post"
    norm_epsilon: float = 1e-5
    final_norm: bool = False
    dropout: float = 0.1

    def __post_init__(self) -> None:
        config.check(self)
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            sizes = f"{self.source_vocab_size} and {self.target_vocab_size}"
            raise ValueError(f"share_embeddings needs one vocabulary: the sizes {sizes} differ")


def max_tokens(cfg: Config) -> int | None:
    """Return the most tokens that a source or a target may have; None if there is no such bound."""
    return model.max_tokens(config_of(cfg, "decoder"))


def init(key: Array, cfg: Config) -> Params:
    """Return parameters, a nested dict of float arrays; those of the blocks have a leading axis of layers."""
    keys = iter(jax.random.split(key, 10))
    tokens_BT, x_BTD = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, cfg.d_model))

    def init_side(side: str, source: Source | None = None) -> Params:
        side_cfg = config_of(cfg, side)
        params: Params = {"blocks": block.init_blocks(next(keys), side_cfg, source)}
        if side == "encoder" or not cfg.share_embeddings:
            params["embedding"] = Embedding(side_cfg.vocab_size, cfg.d_model).init(next(keys), tokens_BT)["params"]
        if cfg.position == "learned":
            scheme = position.Part(side_cfg.position_options, "embed")
            params["position"] = scheme.init(next(keys), None, x_BTD, tokens_BT, cfg.max_len)["params"]
        if cfg.final_norm:
            params["final_norm"] = norm_of(side_cfg).init(next(keys), x_BTD)["params"]
        return params

    source = Source(jnp.ones((1, 1, 1), bool), x_BTD)
    params: Params = {
        "encoder": init_side("encoder"),
        "decoder": init_side("decoder", source),
    }
    if cfg.tie_embeddings:
        return params
    return params | {"head": Head(cfg.target_vocab_size, bias=False).init(next(keys), x_BTD)["params"]}


def apply(
    params: Params,
    source_BS: Tokens,
    target_BT: Tokens,
    cfg: Config,
    *,
    key: Array | None = None,
    source_lengths_B: Array | None = None,
    target_lengths_B: Array | None = None,
    capture: tuple[str, ...] = (),
    remat: bool = False,
) -> Any:
    """Return the logits of the next target token at every position, (B, T, V).

    Computes in the dtype of the parameters; softmax and norms in at least float32. Ids outside of the vocabularies give
    undefined logits.

    Args:
        params: Parameters, see `init`.
        source_BS: Rows of source tokens, int32.
        target_BT: Rows of target tokens, int32.
        cfg: Config of the model.
        key: Randomness of dropout. Without a key there is no dropout.
        source_lengths_B: Lengths of right-padded sources. Padding changes nothing.
        target_lengths_B: Lengths of right-padded targets. Padding changes nothing.
        capture: Any of "encoder_attention" (weights, LBHSS), "decoder_attention" (LBHTT), "cross_attention" (LBHTS),
            "encoder_residual" and "decoder_residual" (the stream before, between and after the blocks, (L+1)BSD and
            (L+1)BTD).
        remat: Compute the inside of each block again for the gradient, which takes less memory and more time.

    Returns:
        logits_BTV, or with `capture` (logits_BTV, {name: array}).

    Raises:
        ValueError: If tokens are no rows of integers, or longer than learned positions; for an unknown name to capture.
    """
    config.check_tokens("target_BT", target_BT, max_tokens(cfg))
    config.check_capture(capture, _CAPTURES["encoder"] + _CAPTURES["decoder"])
    encoder_key, decoder_key = (None, None) if key is None else jax.random.split(key)
    source_BSD, mask_BTS, of_encoder = _encode(params, source_BS, cfg, source_lengths_B, encoder_key, capture, remat)
    target_BT, _ = mask_padding(target_BT, target_lengths_B)
    view = whole_view(jnp.arange(target_BT.shape[1], dtype=jnp.int32)[None])
    source = Source(mask_BTS, source_BSD)
    y_BTD, of_decoder = _apply_side(params, "decoder", target_BT, view, cfg, decoder_key, capture, remat, source)
    logits_BTV = embedding.read_out(_side(params, "decoder"), y_BTD, config_of(cfg, "decoder"))
    return (logits_BTV, of_encoder | of_decoder) if capture else logits_BTV


def unstack(params: Params) -> Params:
    """Return the parameters with the decoder's blocks as a list of layers, see `layers.listed.unstack`."""
    return params | {"decoder": listed.unstack(params["decoder"])}


def encode(
    params: Params,
    source_BS: Tokens,
    cfg: Config,
    *,
    source_lengths_B: Array | None = None,
) -> Array:
    """Return the states of the sources, (B, S, D); those of padding are undefined. Takes the arguments of `apply`."""
    return _encode(params, source_BS, cfg, source_lengths_B)[0]


def init_cache(
    params: Params,
    source_BS: Tokens,
    cfg: Config,
    length: int,
    source_lengths_B: Array | None = None,
) -> Cache:
    """Return the encoded sources and an empty cache for targets of up to `length` tokens: a dict, batch first.

    The sources are held as the keys and values of each layer's cross-attention.
    """
    source_BSD, mask_BTS, _ = _encode(params, source_BS, cfg, source_lengths_B)
    decoder, blocks = config_of(cfg, "decoder"), unstack(params)["decoder"]["blocks"]
    sources = [project_source(layer["cross_attention"], source_BSD, decoder.position_options) for layer in blocks]
    empty = model.init_cache(decoder, len(source_BS), length, source_BSD.dtype)
    return empty | {"source_mask": mask_BTS, "source": sources}


def extend(
    params: Params,
    tokens_BT: Tokens,
    cache: Cache,
    cfg: Config,
    *,
    lengths_B: Array | None = None,
) -> tuple[Array, Cache]:
    """Return the logits of new target tokens after those in the cache, and the cache with them.

    For prefill and single steps alike. A row must not outgrow the cache, nor the max_len of learned positions. The
    arguments and the errors are those of `model.extend`.
    """
    view, tokens_BT, new = place(cache, tokens_BT, lengths_B, None)
    decoder, decoder_cfg = _side(params, "decoder"), config_of(cfg, "decoder")
    x_BTD = embedding.embed(decoder, tokens_BT, view.positions_BT, decoder_cfg)
    sources = [Source(cache["source_mask"], states) for states in cache["source"]]
    x_BTD, layers = block.extend_blocks(decoder, x_BTD, view, cache["layers"], decoder_cfg, sources)
    return embedding.read_out(decoder, x_BTD, decoder_cfg), cache | new | {"layers": layers}


def config_of(cfg: Config, side: str) -> model.Config:
    """Return the Config of the "encoder" or the "decoder", as a decoder-only model has it."""
    encoder = side == "encoder"
    return model.Config(
        vocab_size=cfg.source_vocab_size if encoder else cfg.target_vocab_size,
        n_layers=cfg.n_encoder_layers if encoder else cfg.n_decoder_layers,
        output_projection=True,
        head_bias=False,
        **{field.name: getattr(cfg, field.name) for field in fields(model.Config) if hasattr(cfg, field.name)},
    )


def _side(params: Params, side: str) -> Params:
    """Return the parameters of one side, as a decoder-only model has them."""
    return {"embedding": params["encoder"]["embedding"], "head": params.get("head", {})} | params[side]


def _encode(
    params: Params, source_BS: Any, cfg: Config, lengths_B: Array | None = None, key: Array | None = None,
    capture: tuple[str, ...] = (), remat: bool = False
) -> tuple[Array, Array, dict[str, Array]]:  # fmt: skip
    """Return the states of the sources, the mask of their real tokens, (B, 1, S), and {name: captured array}."""
    config.check_tokens("source_BS", source_BS, max_tokens(cfg))
    source_BS, real_BS = mask_padding(source_BS, lengths_B)
    positions_BS = jnp.arange(source_BS.shape[1], dtype=jnp.int32)[None]
    view = View(real_BS[:, None], positions_BS, positions_BS, positions_BS)
    y_BSD, captured = _apply_side(params, "encoder", source_BS, view, cfg, key, capture, remat)
    return embedding.normalise(params["encoder"], y_BSD, config_of(cfg, "encoder")), view.mask_BTS, captured


def _apply_side(
    params: Params, side: str, tokens_BT: Array, view: View, cfg: Config, key: Array | None,
    capture: tuple[str, ...], remat: bool, source: Source | None = None
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """Return the output of the blocks of one side, and {name: captured array}."""
    params, side_cfg = _side(params, side), config_of(cfg, side)
    name_in_block = {name: name.removeprefix(f"{side}_") for name in capture if name in _CAPTURES[side]}
    x_BTD = embedding.embed(params, tokens_BT, view.positions_BT, side_cfg)
    inner = tuple(name_in_block.values())
    y_BTD, captured = block.apply_blocks(params["blocks"], x_BTD, view, side_cfg, key, inner, remat, source)
    return y_BTD, {name: captured[inner] for name, inner in name_in_block.items()}
