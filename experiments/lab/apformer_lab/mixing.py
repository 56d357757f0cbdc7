"""A decoder whose heads mix the tokens of a window by learned weights, the same for all tokens.

    y_t = sum_o softmax(table[h])_o v_{t-o}     o: 0 to window - 1, as far as there are tokens

There are no queries, keys, norms or projections, and the embedding table is the output head. It is `apformer.model`
with queries and keys of 0, and its parameters have the same names, so that the proof of the home task applies.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from apformer import model
from apformer.layers import at_least_float32, config, listed
from apformer.layers.attention import join, project, softmax
from apformer.layers.embedding import embed, read_out
from apformer.layers.feedforward import FeedForward

CAPTURES = ("attention",)


@dataclass(frozen=True)
class Config:
    """Size of the model. Fields with one choice say which parts it has."""

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
    """Not used: there are no norms."""
    final_norm: Literal[False] = False
    output_projection: Literal[False] = False
    attention_sink: Literal[False] = False
    tie_embeddings: Literal[True] = True
    same_as = "model"  # with queries and keys of 0, see `settings.proof_config`

    def __post_init__(self) -> None:
        config.check(self)

    @property
    def dot_config(self) -> model.Config:
        """The Config of the same model in `apformer.model`, for queries and keys of 0."""
        return model.Config(**vars(self) | {"similarity": "dot"})


def reach(cfg: Config) -> int:
    """Return how many tokens back the logits depend on."""
    return cfg.n_layers * (cfg.window - 1)


def max_tokens(cfg: Config) -> None:
    """Return None: a row may have any number of tokens."""


def init(key: jax.Array, cfg: Config) -> dict:
    """Return the parameters of `model.init` without queries and keys; the values start as its queries."""
    params = model.init(key, cfg.dot_config)
    attention = params["blocks"]["attention"]
    attention["value"] = attention.pop("query")
    del attention["key"]
    return params


def unstack(params: dict) -> dict:
    """Return parameters of `apformer.model` with a list of layers, or those given if they have such a list."""
    blocks = params["blocks"]
    if isinstance(blocks, list):
        return params
    none = dict.fromkeys(("query", "key"), jnp.zeros_like(blocks["attention"]["value"]))
    return listed.unstack(params | {"blocks": blocks | {"attention": blocks["attention"] | none}})


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
        key: Not used: nothing is random.
        lengths_B: Not used: right-padding never changes the logits before it.
        capture: With "attention", (logits_BTV, {"attention": weights_LBHTS}) is returned.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    config.check_capture(capture, CAPTURES)
    place_T = jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)
    back_TS = place_T[:, None] - place_T[None]
    seen_TS, near_TS = (back_TS >= 0) & (back_TS < cfg.window), jnp.clip(back_TS, 0, cfg.window - 1)
    x_BTD, weights = embed(params, tokens_BT, place_T[None], cfg.dot_config), []
    for layer in unstack(params)["blocks"]:
        table_HO, W_DHK = layer["attention"]["relative"]["table"], layer["attention"]["value"]
        scores_HTS = table_HO.astype(at_least_float32(x_BTD.dtype))[:, near_TS]
        weights_1HTS = softmax(scores_HTS[None], seen_TS[None]).astype(x_BTD.dtype)
        x_BTD = x_BTD + join(jnp.einsum("HTS,BSHK->BTHK", weights_1HTS[0], project(x_BTD, W_DHK)))
        x_BTD = x_BTD + FeedForward(cfg.d_ff or 4 * cfg.d_model).apply({"params": layer["feedforward"]}, x_BTD)
        weights.append(jnp.broadcast_to(weights_1HTS, (*x_BTD.shape[:1], *weights_1HTS.shape[1:])))
    logits_BTV = read_out(params, x_BTD, cfg.dot_config)
    return (logits_BTV, {"attention": jnp.stack(weights)}) if capture else logits_BTV


def init_cache(cfg: Config, batch_size: int, length: int, dtype: Any = jnp.float32) -> dict:
    """Return an empty cache for rows of up to `length` tokens, see `model.init_cache`."""
    return model.init_cache(cfg.dot_config, batch_size, length, dtype)


def extend(
    params: dict, tokens_BT: jax.Array, cache: dict, cfg: Config, *, lengths_B: jax.Array | None = None
) -> tuple[jax.Array, dict]:
    """Return (logits_BTV, cache) of new tokens after those in the cache, see `model.extend`."""
    return model.extend(unstack(params), tokens_BT, cache, cfg.dot_config, lengths_B=lengths_B)
