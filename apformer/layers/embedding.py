"""Tokens to vectors and back: x = E[ids], times sqrt(d_model) with `scale`, and logits = X W_out + b.

Vaswani et al. 2017, section 3.4. A head that gets the table is tied: W_out = E^T (Press and Wolf 2017).
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import Params, position
from apformer.layers.feedforward import Linear
from apformer.layers.norm import norm_of


class Embedding(nn.Module):
    """Look up tokens: x_BTD = table_VD[tokens_BT], times sqrt(d_model) with `scale`. std: of the initial table."""

    vocab_size: int
    d_model: int
    scale: bool = False
    std: float | None = None  # None for 1 / sqrt(d_model)

    @nn.compact
    def __call__(self, tokens_BT: Array) -> Array:
        std = self.d_model**-0.5 if self.std is None else self.std
        table_VD = self.param("table", nn.initializers.normal(std), (self.vocab_size, self.d_model))
        x_BTD = jnp.take(table_VD, tokens_BT, axis=0)
        return x_BTD * jnp.asarray(self.d_model**0.5, x_BTD.dtype) if self.scale else x_BTD


class Head(nn.Module):
    """Map states to logits: logits_BTV = x_BTD W_out + b, with W_out = table^T if a table is given (tied)."""

    vocab_size: int
    bias: bool = True

    @nn.compact
    def __call__(self, x_BTD: Array, table_VD: Array | None = None) -> Array:
        if table_VD is None:
            return Linear(self.vocab_size, self.bias, name="output")(x_BTD)
        from apformer.layers import listed  # imported late: few models need it

        logits_BTV = listed.product(x_BTD, table_VD.T)
        if self.bias:
            logits_BTV = logits_BTV + self.param("bias", nn.initializers.zeros, (self.vocab_size,))[None, None]
        return logits_BTV


def embed(params: Params, tokens_BT: Array, positions_BT: Array, cfg: Any) -> Array:
    """Return the embeddings of tokens, (B, T, D), plus those of positions if the scheme has some."""
    embedding = Embedding(len(params["embedding"]["table"]), cfg.d_model, cfg.scale_embedding)
    x_BTD = embedding.bind({"params": params["embedding"]})(tokens_BT)
    scheme = position.Part(cfg.position_options, "embed").bind({"params": params.get("position", {})})
    return scheme(x_BTD, x_BTD, positions_BT, cfg.max_len)


def normalise(params: Params, x_BTD: Array, cfg: Any) -> Array:
    """Return the states of the last block, (B, T, D), after the final norm if there is one."""
    return norm_of(cfg).bind({"params": params["final_norm"]})(x_BTD) if cfg.final_norm else x_BTD


def read_out(params: Params, x_BTD: Array, cfg: Any) -> Array:
    """Return the logits, (B, T, V), of the states of the last block: final norm if there is one, then the head."""
    table_VD = params["embedding"]["table"] if cfg.tie_embeddings else None
    head = Head(cfg.vocab_size, cfg.head_bias).bind({"params": params.get("head", {})})
    return head(normalise(params, x_BTD, cfg), table_VD)
