"""A decoder whose heads mix the tokens of a window by learned weights, the same for all tokens.

    y_t = sum_o softmax(table[h])_o v_{t-o}     o: 0 to window - 1, as far as there are tokens

There are no queries, keys, norms or projections, and the embedding table reads out. The names of the parameters, and of
the fields that say what it does without, are those of `apformer.model`, so that its proof is that of the home task.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from apformer.layers import at_least_float32, config
from apformer.layers.block import unstack
from apformer.layers.embedding import Embedding, Head
from apformer.layers.feedforward import FeedForward, product
from apformer.layers.position.relative import one_offset_each

CAPTURES = ("attention",)


@dataclass(frozen=True)
class Config:
    """Size of the model. The fields with one choice say what it has and does without."""

    vocab_size: int = 11
    """Number of tokens."""
    d_model: int = 4
    """Width of the model."""
    n_heads: int = 4
    """Number of heads, each d_model / n_heads wide."""
    n_layers: int = 1
    """Number of blocks."""
    d_ff: int | None = None
    """Width of the feed-forward layer. With None, 4 * d_model."""
    window: int = 8
    """Number of tokens that a head mixes, the token itself among them."""
    position: Literal["relative"] = "relative"
    similarity: Literal["none"] = "none"
    norm: Literal["none"] = "none"
    norm_epsilon: float = 1e-5
    """Number without a use: there are no norms."""
    final_norm: Literal[False] = False
    output_projection: Literal[False] = False
    attention_sink: Literal[False] = False
    tie_embeddings: Literal[True] = True

    def __post_init__(self) -> None:
        config.check(self)


def reach(cfg: Config) -> int:
    """Return how many tokens back the logits depend on."""
    return cfg.n_layers * (cfg.window - 1)


def max_tokens(cfg: Config) -> None:
    """Return None: a row may have any number of tokens."""


def wants_key(cfg: Config) -> bool:
    """Return False: nothing is random in training."""
    return False


def init(key: jax.Array, cfg: Config) -> dict:
    """Return parameters as a nested dict of float32 arrays; those of the blocks are stacked on a leading layer axis."""
    embedding_key, _, block_key, _, head_key = jax.random.split(key, 5)
    tokens_BT, x_BTD = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, cfg.d_model))
    embedding = Embedding(cfg.vocab_size, cfg.d_model).init(embedding_key, tokens_BT)["params"]
    make = lambda key: Block(cfg).init(key, x_BTD)["params"]  # noqa: E731
    blocks = jax.vmap(make)(jax.random.split(block_key, cfg.n_layers))
    head = Head(cfg.vocab_size).init(head_key, x_BTD, embedding["table"])["params"]
    return {"embedding": embedding, "blocks": blocks, "head": head}


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
        params: What `init` returns, or `unstack` of it.
        tokens_BT: int32 rows.
        cfg: Config of the model.
        key: Not used: nothing is random.
        lengths_B: Lengths of right-padded rows. What stands beyond a row changes nothing before it.
        capture: With "attention", (logits_BTV, {"attention": weights_LBHTS}) is returned.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    config.check_capture(capture, CAPTURES)
    table_VD, weights = params["embedding"]["table"], []
    x_BTD = Embedding(cfg.vocab_size, cfg.d_model).apply({"params": params["embedding"]}, tokens_BT)
    for layer in unstack(params)["blocks"]:
        x_BTD, weights_HTS = Block(cfg).apply({"params": layer}, x_BTD)
        weights.append(jnp.broadcast_to(weights_HTS[None], (len(x_BTD), *weights_HTS.shape)))
    logits_BTV = Head(cfg.vocab_size).apply({"params": params["head"]}, x_BTD, table_VD)
    return (logits_BTV, {"attention": jnp.stack(weights)}) if capture else logits_BTV


def init_cache(cfg: Config, batch_size: int, length: int, dtype: Any = jnp.float32) -> dict:
    """Return an empty cache for rows of up to `length` tokens: a dict, batch first in every leaf."""
    return {
        "length": jnp.zeros(batch_size, jnp.int32),
        "tokens": jnp.zeros((batch_size, length), jnp.int32),
    }


def extend(
    params: dict, tokens_BT: jax.Array, cache: dict, cfg: Config, *, lengths_B: jax.Array | None = None
) -> tuple[jax.Array, dict]:
    """Return (logits_BTV, cache) of new tokens after those in the cache, whose rows are computed again.

    lengths_B: how many of a row's new tokens are real, possibly none. Raises ValueError for more tokens in one call
    than the cache has room for.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    (B, T), slots = tokens_BT.shape, cache["tokens"].shape[1]
    if T > slots:
        raise ValueError(f"{T} tokens do not fit a cache of {slots}")
    row_B1, place_1T = jnp.arange(B)[:, None], jnp.arange(T, dtype=jnp.int32)[None]
    real_BT = place_1T < (jnp.full(B, T) if lengths_B is None else lengths_B)[:, None]
    slot_BT = cache["length"][:, None] + place_1T
    written_BS = cache["tokens"].at[row_B1, jnp.where(real_BT, slot_BT, slots)].set(tokens_BT, mode="drop")
    logits_BSV = apply(params, written_BS, cfg)
    length_B = cache["length"] + real_BT.sum(1, dtype=jnp.int32)
    return logits_BSV[row_B1, jnp.minimum(slot_BT, slots - 1)], {"length": length_B, "tokens": written_BS}


class Block(nn.Module):
    """One layer: x + mixing(x), then + feedforward(.)."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array]:
        y_BTD, weights_HTS = Mixing(self.cfg, name="attention")(x_BTD)
        x_BTD = x_BTD + y_BTD
        return x_BTD + FeedForward(self.cfg.d_ff or 4 * self.cfg.d_model, name="feedforward")(x_BTD), weights_HTS


class Table(nn.Module):
    """Score of each head and offset."""

    cfg: Config

    @nn.compact
    def __call__(self) -> jax.Array:
        return self.param("table", one_offset_each, (self.cfg.n_heads, self.cfg.window))


class Mixing(nn.Module):
    """Weighted sums of the values of a window."""

    cfg: Config

    @nn.compact
    def __call__(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array]:
        (B, T, D), H = x_BTD.shape, self.cfg.n_heads
        W_DHK = self.param("value", nn.initializers.xavier_uniform(in_axis=0, out_axis=(1, 2)), (D, H, D // H))
        v_BSHK = product(x_BTD, W_DHK.reshape(D, D)).reshape(B, T, H, D // H)
        scores_HO = Table(self.cfg, name="relative")().astype(at_least_float32(x_BTD.dtype))
        place_T = jnp.arange(T, dtype=jnp.int32)
        back_TS = place_T[:, None] - place_T[None]
        seen_TS = (back_TS >= 0) & (back_TS < self.cfg.window)
        scores_HTS = scores_HO[:, jnp.clip(back_TS, 0, self.cfg.window - 1)]
        scores_HTS = jnp.where(seen_TS[None], scores_HTS, jnp.finfo(scores_HTS.dtype).min)
        weights_HTS = jax.nn.softmax(scores_HTS, axis=-1).astype(x_BTD.dtype)
        return jnp.einsum("HTS,BSHK->BTHK", weights_HTS, v_BSHK).reshape(B, T, D), weights_HTS
