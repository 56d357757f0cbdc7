"""The decoder-only transformer: embed, N blocks of masked self-attention and feed-forward, read out the next token.

    x_0     = E[tokens] + PE
    h_l     = x_l + attention(norm(x_l)),    x_{l+1} = h_l + feedforward(norm(h_l))        l = 0 .. n_layers - 1
    logits  = x_L W_out + b, or norm(x_L) W_out + b with final_norm;  logits at t predict token t + 1

The decoder of GPT-2 (Radford et al. 2019). The defaults of `Config` are the sketch: one pre-norm block, one head.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from apformer.layers import Cache, Params, Tokens, config, position
from apformer.layers.block import apply_blocks, extend_blocks, init_blocks
from apformer.layers.cache import place
from apformer.layers.embedding import Embedding, Head, embed, read_out
from apformer.layers.masks import mask_padding, whole_view
from apformer.layers.norm import norm_of

CAPTURES = ("attention", "residual", "query", "key", "value", "scores", "feedforward")  # what `apply` can capture


@dataclass(frozen=True)
class Config:
    """Size and parts of a model; frozen and hashable, a static argument of jit.

    Attributes:
        vocab_size: Number of tokens. A run takes that of its vocabulary.
        d_model: Width of the residual stream.
        n_heads: Number of attention heads, each d_model / n_heads wide.
        n_layers: Number of blocks.
        d_ff: Width of the feed-forward layer. With None, 4 * d_model.
        max_len: Number of positions in the learned table, and of offsets in the relative table without a window.
        window: Number of tokens that a query may see, itself included. With None, all before it.
        position: Position scheme: a file of layers/position/.
        position_options: Options of the position scheme. The default is those of its file.
        similarity: Formula of the attention scores: a file of layers/similarity/.
        scale_embedding: Factor sqrt(d_model) on embeddings.
        embedding_std: Standard deviation of embeddings at the start. With None, 1 / sqrt(d_model).
        tie_embeddings: Transposed embedding table as the output head, instead of a matrix of its own.
        attention_bias: Biases on queries, keys, values and the output projection.
        output_projection: Linear map after the heads are joined.
        attention_sink: One more key for each head, with a learned score and the value 0.
        activation: Nonlinearity of the feed-forward layer. gelu_tanh is GPT-2's approximation.
        feedforward: Feed-forward sub-layer in each block. Without it a block is its attention.
        feedforward_norm: Norm for the feed-forward layer, beside the one for attention.
        norm: Normalisation: layer (LayerNorm), rms (RMSNorm), or none.
        norm_position: Place of the norms: pre (before each sub-layer) or post (after each residual sum).
        residual: Residual connection: the input of a sub-layer is added to its output.
        norm_epsilon: Number that a norm adds to the mean of squares, against division by 0.
        final_norm: Norm before the output head: RMSNorm with norm rms, else LayerNorm.
        head_bias: Bias on the logits.
        dropout: Share of embeddings and sub-layer outputs set to 0, in training only.
        attention_dropout: Share of attention weights set to 0, in training only.
    """

    vocab_size: int = 11
    d_model: int = 64
    n_heads: int = 1
    n_layers: int = 1
    d_ff: int | None = None
    max_len: int = 1024
    window: int | None = None
    position: config.Position = "sinusoidal"
    position_options: Any = None
    similarity: config.Similarity = "scaled_dot"
    scale_embedding: bool = False
    embedding_std: float | None = None
    tie_embeddings: bool = False
    attention_bias: bool = False
    output_projection: bool = False
    attention_sink: bool = False
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    feedforward: bool = True
    feedforward_norm: bool = True
    norm: Literal["layer", "rms", "none"] = "layer"
    norm_position: Literal["pre", "post"] = "pre"
    residual: bool = True
    norm_epsilon: float = 1e-5
    final_norm: bool = False
    head_bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0

    def __post_init__(self) -> None:
        config.check(self)
        Scheme = config.load("position", self.position).Scheme
        if self.position_options is None:
            object.__setattr__(self, "position_options", Scheme())
        if not isinstance(self.position_options, Scheme):
            raise ValueError(f"options {self.position_options} are not those of position {self.position}: drop them")


def reach(cfg: Config) -> int | None:
    """Return how many earlier tokens the logits depend on; None if on all of them, or on absolute positions."""
    scheme = cfg.position_options
    layer = scheme.reach(cfg.window) if hasattr(scheme, "reach") else None
    return None if layer is None else cfg.n_layers * layer


def max_tokens(cfg: Config) -> int | None:
    """Return the most tokens a row may have; None if there is no such bound."""
    scheme = cfg.position_options
    return scheme.max_tokens(cfg.max_len) if hasattr(scheme, "max_tokens") else None


def init(key: Array, cfg: Config) -> Params:
    """Return parameters, a nested dict of float arrays; those of the blocks have a leading axis of layers."""
    embedding_key, position_key, block_key, norm_key, head_key = jax.random.split(key, 5)
    tokens_BT, x_BTD = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, cfg.d_model))
    embedding = Embedding(cfg.vocab_size, cfg.d_model, std=cfg.embedding_std).init(embedding_key, tokens_BT)
    params = {"embedding": embedding["params"], "blocks": init_blocks(block_key, cfg)}
    scheme = position.Part(cfg.position_options, "embed")
    if learned := scheme.init(position_key, None, x_BTD, tokens_BT, cfg.max_len):
        params["position"] = learned["params"]
    if cfg.final_norm:
        params["final_norm"] = norm_of(cfg).init(norm_key, x_BTD)["params"]
    table_VD = params["embedding"]["table"] if cfg.tie_embeddings else None
    head = Head(cfg.vocab_size, cfg.head_bias).init(head_key, x_BTD, table_VD)
    return params | {"head": head["params"]} if head else params


def apply(
    params: Params, tokens_BT: Tokens, cfg: Config, *, key: Array | None = None, remat: bool = False,
    lengths_B: Array | None = None, positions_BT: Array | None = None, capture: tuple[str, ...] = ()
) -> Any:  # fmt: skip
    """Return the logits of the next token at every position, (B, T, V).

    Computes in the dtype of the parameters; softmax and norms in at least float32.

    Args:
        params: Parameters, see `init`.
        tokens_BT: Rows of tokens, int32, 0 to vocab_size - 1; one beyond gives NaN, a negative one counts from the end.
        cfg: Config of the model.
        key: Randomness of dropout. Without a key there is no dropout.
        lengths_B: Lengths of right-padded rows. Padding changes nothing.
        positions_BT: Positions other than 0, 1, 2 ...; they must increase along a row.
        capture: Any of "attention" (weights, LBHTS), "residual" (the stream before, between and after the blocks,
            (L+1)BTD), "query", "key", "value" (LBTHK, as they are compared), "scores" (LBHTS, before bias and mask)
            and "feedforward" (activations, LBTF); then (logits_BTV, {name: array}) is returned.
        remat: Compute the inside of each block again for the gradient, which takes less memory and more time.

    Raises:
        ValueError: If tokens_BT are no rows of integers, or longer than `max_tokens`; for an unknown name to capture.
    """
    config.check_tokens("tokens_BT", tokens_BT, max_tokens(cfg) if positions_BT is None else None)
    config.check_capture(capture, CAPTURES if cfg.feedforward else CAPTURES[:-1])
    tokens_BT, _ = mask_padding(tokens_BT, lengths_B)
    T = tokens_BT.shape[1]
    if positions_BT is None and not set(capture) - {"residual"} and (window := _window(cfg, T)):
        view = window.view(T, cfg.window)
    else:
        view = whole_view(jnp.arange(T)[None] if positions_BT is None else positions_BT, cfg.window)
    x_BTD = embed(params, tokens_BT, view.positions_BT, cfg)
    y_BTD, captured = apply_blocks(params["blocks"], x_BTD, view, cfg, key, capture, remat)
    logits_BTV = read_out(params, y_BTD, cfg)
    return (logits_BTV, captured) if capture else logits_BTV


def unstack(params: Params) -> Params:
    """Return the parameters in the form that `extend` reads fastest, for it alone. Call it once, outside of loops."""
    from apformer.layers import listed

    return listed.unstack_transposed(params)


def init_cache(cfg: Config, batch_size: int, length: int, dtype: Any = float) -> Cache:
    """Return an empty cache for rows of up to `length` tokens: a dict, batch first in every leaf.

    A model with a window has at most `window` slots; if `length` is at least `window`, rows may be longer than it.
    """
    slots = length if cfg.window is None else min(cfg.window, length)
    shape_BHSK = (batch_size, cfg.n_heads, slots, cfg.d_model // cfg.n_heads)
    return {
        "length": jnp.zeros(batch_size, jnp.int32),
        "position": jnp.full((batch_size, slots), -1, jnp.int32),
        "layers": [{name: jnp.zeros(shape_BHSK, dtype) for name in ("key", "value")} for _ in range(cfg.n_layers)],
    }


def extend(
    params: Params, tokens_BT: Tokens, cache: Cache, cfg: Config, *, lengths_B: Array | None = None
) -> tuple[Array, Cache]:
    """Return the logits of new tokens after those in the cache, and the cache with them.

    `lengths_B` is the number of real new tokens in each row, possibly 0. `params` may be the result of `unstack`. The
    cache needs a slot for each token of a row, or of the window. Learned positions are wrong beyond max_len.

    Raises:
        ValueError: If tokens_BT are no rows of integers; without a window, if they outnumber the slots of the cache.
    """
    view, tokens_BT, new = place(cache, tokens_BT, lengths_B, cfg.window)
    if window := _window(cfg, tokens_BT.shape[1]):
        view = window.cached_view(cache, view, cfg.window)
    x_BTD = embed(params, tokens_BT, view.positions_BT, cfg)
    x_BTD, layers = extend_blocks(params, x_BTD, view, cache["layers"], cfg)
    return read_out(params, x_BTD, cfg), new | {"layers": layers}


def _window(cfg: Config, T: int) -> Any:
    """Return the module `layers.window` where it computes attention faster than the masked square, else None."""
    if cfg.window is None:
        return None
    from apformer.layers import window  # imported late: models without a window never need it

    return window if window.serves(cfg, T) else None
