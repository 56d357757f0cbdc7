"""A decoder whose layers read a few tokens each, at positions that are known in advance.

    score(t, o) = q_t . k_o / sqrt(K) + bias[h, o]        o: the offsets that a layer reads from t
    y_t         = sum_o softmax(score(t))_o v_o

So the cost of a token does not depend on the length of its row, and a proof can list all strings of the few tokens on
which the logits depend. The patterns, as offsets back from the token itself:

    fixed_offsets   `offsets`, in every layer
    columns         two layers, for terms with the least significant digit first:
                    0, P, P + 1 and the heading; then 0 and P - 1, without the heading
    ahead           three layers, for terms with the most significant digit first, see ahead.py:
                    0, P; then 0, 1; then P - 2, and a head that looks for a key ahead

A row may begin with a heading of a few tokens and a separator. Terms of D digits and a separator then repeat every
P = D + 1 tokens, and P is found from the text. Before the first term has ended, P is unknown, and positions that depend
on it are masked. So are positions before the row, and offsets that point into the heading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import at_least_float32, config
from apformer.layers.attention import join, project, softmax
from apformer.layers.embedding import Embedding, Head
from apformer.layers.feedforward import FeedForward
from apformer.layers.listed import unstack
from apformer.layers.norm import LayerNorm
from apformer_lab import ahead
from apformer_lab.places import UNKNOWN, Read, one_hot, periods, pick, places, reads

CAPTURES = ("attention",)
LAYERS = {"columns": 2, "ahead": 3}


@dataclass(frozen=True)
class Config:
    """Size and parts of the model."""

    vocab_size: int = 11
    """Number of tokens."""
    d_model: int = 64
    """Width of the model."""
    n_heads: int = 8
    """Number of attention heads, each d_model / n_heads wide."""
    n_layers: int = 2
    """Number of blocks."""
    d_ff: int | None = None
    """Width of the feed-forward layer. With None, 4 * d_model."""
    pattern: Literal["fixed_offsets", "columns", "ahead"] = "columns"
    """Places that a layer reads: fixed_offsets, columns (least significant digit first) or ahead (most significant)."""
    offsets: tuple[int, ...] = (0, 1)
    """Offsets back to the tokens that a layer of fixed_offsets reads; the first is 0, the token itself."""
    separator: int = 10
    """Token that ends the heading and each term."""
    heading: int | None = None
    """Number of tokens before the first separator, which say what the terms are. With None, rows begin with a term."""
    score_noise: float = 0.0
    """Standard deviation of the noise on both numbers of a key (see ahead.py), in training of the pattern ahead."""
    similarity: Literal["scaled_dot", "none"] = "scaled_dot"
    """Attention scores: scaled_dot, or none, where there are no queries and keys and biases alone decide."""
    attention_sink: bool = False
    """One more key for each head, with a learned score and the value 0."""
    output_projection: bool = True
    """Linear map after the heads are joined."""
    norm: Literal["layer", "none"] = "layer"
    """Normalisation: layer (LayerNorm), or none."""
    norm_epsilon: float = 1e-5
    """Number that LayerNorm adds to the variance, against division by 0."""
    final_norm: bool = True
    """LayerNorm before the output head."""
    tie_embeddings: bool = False
    """Transposed embedding table as the output head, instead of a matrix of its own."""

    def __post_init__(self) -> None:
        config.check(self)
        offsets, layers = self.offsets, LAYERS.get(self.pattern, self.n_layers)
        if offsets[:1] != (0,) or min(offsets) < 0 or max(offsets) >= 2**31 or len({*offsets}) < len(offsets):
            raise ValueError(f"offsets {offsets} are not 0 and then other whole numbers above it, each given once")
        if self.n_layers != layers:
            raise ValueError(f"n_layers {self.n_layers} is not {layers}, for which pattern {self.pattern} has places")
        other = self.heading or self.attention_sink or self.similarity == "none"
        if self.pattern == "ahead" and (self.n_heads < 2 or other):
            raise ValueError("pattern ahead needs n_heads 2 or more, scaled_dot, no heading and no attention_sink")
        if not 0 <= self.score_noise < float("inf"):
            raise ValueError(f"score_noise {self.score_noise} is not a finite number of at least 0")


def reach(cfg: Config) -> int | None:
    """Return how many tokens back the logits depend on; None if there is no such bound."""
    return cfg.n_layers * max(cfg.offsets) if cfg.pattern == "fixed_offsets" and not cfg.heading else None


def max_tokens(cfg: Config) -> None:
    """Return None: a row may have any number of tokens."""


def init(key: jax.Array, cfg: Config) -> dict:
    """Return parameters as a nested dict of float32 arrays; those of the blocks are stacked on a leading layer axis."""
    embedding_key, _, block_key, norm_key, head_key = jax.random.split(key, 5)
    tokens_BT, x_BTD = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, cfg.d_model))
    read = Read(jnp.zeros((1, 1, places(cfg)), jnp.int32), jnp.ones((1, 1, places(cfg)), bool))
    make = lambda key: Block(cfg).init(key, x_BTD, read, lambda *new: new)["params"]  # noqa: E731
    params = {
        "embedding": Embedding(cfg.vocab_size, cfg.d_model).init(embedding_key, tokens_BT)["params"],
        "blocks": jax.vmap(make)(jax.random.split(block_key, cfg.n_layers)),
    }
    if cfg.final_norm:
        params["final_norm"] = LayerNorm(cfg.norm_epsilon).init(norm_key, x_BTD)["params"]
    table_VD = params["embedding"]["table"] if cfg.tie_embeddings else None
    return params | {"head": Head(cfg.vocab_size).init(head_key, x_BTD, table_VD)["params"]}


def apply(
    params: dict,
    tokens_BT: jax.Array,
    cfg: Config,
    *,
    key: jax.Array | None = None,
    lengths_B: jax.Array | None = None,
    capture: tuple[str, ...] = (),
) -> Any:
    """Return the logits of the next token at every position: (B, T, V).

    Args:
        params: Parameters, see `init`, or the result of `unstack`.
        tokens_BT: int32 rows.
        cfg: Config of the model.
        key: Random key of a training step; without one, the pattern ahead makes hard choices, as in its proof.
        lengths_B: Not used: right-padding never changes the logits before it.
        capture: With "attention", (logits_BTV, {"attention": weights_LBHTS}) is returned.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    config.check_capture(capture, CAPTURES)
    B, T = tokens_BT.shape
    positions_BT = jnp.broadcast_to(jnp.arange(T, dtype=jnp.int32)[None], (B, T))
    period_BT = periods(tokens_BT, positions_BT, jnp.zeros(B, jnp.int32), cfg)
    stores = [lambda *new: new] * cfg.n_layers
    logits_BTV, weights = _logits(params, tokens_BT, positions_BT, period_BT, cfg, stores, key)
    if not capture:
        return logits_BTV
    at = [jnp.einsum("BHTO,BTOS->BHTS", w_BHTO, one_hot(read, T, w_BHTO.dtype)) for read, w_BHTO in weights]
    return logits_BTV, {"attention": jnp.stack(at)}


def init_cache(cfg: Config, batch_size: int, length: int, dtype: Any = jnp.float32) -> dict:
    """Return an empty cache for rows of up to `length` tokens: a dict, batch first in every leaf."""
    shape_BSHK = (batch_size, length, cfg.n_heads, cfg.d_model // cfg.n_heads)
    names = ("key", "value")[cfg.similarity == "none" :]
    layers = [{name: jnp.zeros(shape_BSHK, dtype) for name in names} for _ in range(cfg.n_layers)]
    return {name: jnp.zeros(batch_size, jnp.int32) for name in ("length", "period")} | {"layers": layers}


def extend(
    params: dict, tokens_BT: jax.Array, cache: dict, cfg: Config, *, lengths_B: jax.Array | None = None
) -> tuple[jax.Array, dict]:
    """Return (logits_BTV, cache) of new tokens after those in the cache, in prefill and in single steps.

    lengths_B: Number of real new tokens of each row, possibly none. Raises ValueError for more tokens in one call than
    the cache has slots.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    (B, T), slots = tokens_BT.shape, next(iter(cache["layers"][0].values())).shape[1]
    if T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    step_1T, rows_B1 = jnp.arange(T, dtype=jnp.int32)[None], jnp.arange(B)[:, None]
    real_BT = step_1T < (jnp.full(B, T) if lengths_B is None else lengths_B)[:, None]
    positions_BT = cache["length"][:, None] + step_1T
    slot_BT = jnp.where(real_BT, positions_BT, slots)  # padding has no slot, and is dropped
    tokens_BT = jnp.where(real_BT, tokens_BT, 0)
    period_BT = periods(jnp.where(real_BT, tokens_BT, -1), positions_BT, cache["period"], cfg)
    layers = [dict(layer) for layer in cache["layers"]]

    def store(layer: dict, *new: jax.Array) -> list[jax.Array]:
        for (name, x_BSHK), x_BTHK in zip(layer.items(), new, strict=True):
            layer[name] = x_BSHK.at[rows_B1, slot_BT].set(x_BTHK, mode="drop")
        return [*layer.values()]

    stores = [partial(store, layer) for layer in layers]
    logits_BTV, _ = _logits(params, tokens_BT, positions_BT, period_BT, cfg, stores, None)
    length_B = cache["length"] + real_BT.sum(1, dtype=jnp.int32)
    return logits_BTV, {"length": length_B, "period": period_BT[:, -1], "layers": layers}


def _logits(
    params: dict,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    period_BT: jax.Array,
    cfg: Config,
    stores: list,
    key: Any,
) -> tuple[jax.Array, list]:
    """Return (logits_BTV, [(read, weights_BHTO) of each layer]).

    stores: For each layer, a function of the new keys and values, or values alone, that returns those of whole rows.
    """
    embedding = {"params": params["embedding"]}
    x_BTD, layer_weights = Embedding(cfg.vocab_size, cfg.d_model).apply(embedding, tokens_BT), []
    for number, (layer, store) in enumerate(zip(unstack(params)["blocks"], stores, strict=True)):
        read, look = reads(cfg, number, positions_BT, period_BT), None
        if cfg.pattern == "ahead" and number == cfg.n_layers - 1:
            from_BT = jnp.where(period_BT > 0, positions_BT - period_BT + 3, UNKNOWN)
            how = {"positions_BT": positions_BT, "key": key, "noise": cfg.score_noise}
            look = partial(ahead.look, from_BT=from_BT, **how)
        x_BTD, weights_BHTO = Block(cfg).apply({"params": layer}, x_BTD, read, store, look)
        layer_weights.append((read, weights_BHTO))
    if cfg.final_norm:
        x_BTD = LayerNorm(cfg.norm_epsilon).apply({"params": params["final_norm"]}, x_BTD)
    table_VD = params["embedding"]["table"] if cfg.tie_embeddings else None
    return Head(cfg.vocab_size).apply({"params": params["head"]}, x_BTD, table_VD), layer_weights


class Block(nn.Module):
    """One layer: x + attention(norm(x)), then + feedforward(norm(.)); the pattern ahead has no residuals."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD: jax.Array, read: Read, store: Callable, look: Callable | None = None) -> tuple:
        cfg = self.cfg
        norm = lambda name: LayerNorm(cfg.norm_epsilon, name=name) if cfg.norm == "layer" else lambda x: x  # noqa: E731
        add = (lambda x, y: y) if cfg.pattern == "ahead" else jnp.add
        y_BTD, weights_BHTO = Attention(cfg, name="attention")(norm("attention_norm")(x_BTD), read, store, look)
        x_BTD = add(x_BTD, y_BTD)
        feedforward = FeedForward(cfg.d_ff or 4 * cfg.d_model, name="feedforward")
        return add(x_BTD, feedforward(norm("feedforward_norm")(x_BTD))), weights_BHTO


class Bias(nn.Module):
    """Bias of each head for each position that it reads."""

    cfg: Config

    @nn.compact
    def __call__(self) -> jax.Array:
        return self.param("bias", partial(_bias_init, self.cfg.pattern), (self.cfg.n_heads, places(self.cfg)))


def _bias_init(pattern: str, key: jax.Array, shape_HO: tuple[int, int]) -> jax.Array:
    """Return biases with which each head prefers another position; a single head gets random ones."""
    heads, many = shape_HO
    if heads == 1:
        return jax.random.normal(key, shape_HO)
    own_HO = jax.nn.one_hot((jnp.arange(heads) + int(pattern != "columns")) % many, many)
    return 3.0 * own_HO + 0.3 * jax.random.normal(key, shape_HO)


class Attention(nn.Module):
    """Attention of each token to the keys that it reads."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD: jax.Array, read: Read, store: Callable, look: Callable | None) -> tuple:
        """Return (y_BTD, weights_BHTO).

        store(key, value) -> the keys and values of the row, (B, S, H, K); without keys it takes the value alone.
        look(y_BTHK, k_BSHK, v_BSHK) -> y_BTHK with the output of the last head replaced, see `ahead.look`.
        """
        cfg, D, H = self.cfg, self.cfg.d_model, self.cfg.n_heads
        K, glorot = D // H, nn.initializers.xavier_uniform
        heads = lambda name: project(x_BTD, self.param(name, glorot(0, (1, 2)), (D, H, K)))  # noqa: E731
        has_scores = cfg.similarity != "none"
        new = [heads(name) for name in (("query", "key", "value") if has_scores else ("value",))]
        bias_HO = Bias(cfg, name=cfg.pattern)()[:, : read.slot_BTO.shape[-1]]
        *k_BSHK, v_BSHK = store(*new[has_scores:])
        scores_BHTO = bias_HO.astype(at_least_float32(x_BTD.dtype))[None, :, None]
        if has_scores:
            by_key_BHTO = jnp.einsum("BTHK,BTOHK->BHTO", new[0], pick(k_BSHK[0], read))
            scores_BHTO = scores_BHTO + (by_key_BHTO * jnp.asarray(K**-0.5, x_BTD.dtype)).astype(scores_BHTO.dtype)
        sink_H = self.param("sink", nn.initializers.zeros, (H,)) if cfg.attention_sink else None
        weights_BHTO = softmax(scores_BHTO, read.there_BTO, sink_H).astype(x_BTD.dtype)
        y_BTHK = jnp.einsum("BHTO,BTOHK->BTHK", weights_BHTO, pick(v_BSHK, read))
        y_BTHK = look(y_BTHK, k_BSHK[0], v_BSHK) if look else y_BTHK
        W_HKD = self.param("output", glorot((0, 1), 2), (H, K, D)) if cfg.output_projection else None
        return join(y_BTHK, W_HKD), weights_BHTO
