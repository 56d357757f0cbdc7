"""Recurrent language models: embed, n_layers of a cell that carries a state from token to token, read out the next.

    candidate   n = tanh(W x_t + b + U h_{t-1})             gates  r, z, i, f, o = sigmoid(W. x_t + b. + U. h_{t-1})

    RNN         h_t = n                                                                     Elman 1990
    GRU         h_t = (1 - z) n + z h_{t-1},  in n: r (U h_{t-1} + b') for U h_{t-1}        Cho et al. 2014
    LSTM        c_t = f c_{t-1} + i n,  h_t = o tanh(c_t)       Hochreiter & Schmidhuber 1997, f: Gers et al. 2000

x_t is sqrt(d_model) E[token], or the h_t of the layer below; logits at t predict token t + 1. The reset gate r acts
after the matrix, as in PyTorch (the paper has U (r h)). The functions have the names of those of `model.py`. The cells
are not those of Flax, so that parameters keep their names and the forget gate can start open.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import Cache, Params, config
from apformer.layers.embedding import Embedding, Head
from apformer.layers.masks import mask_padding

State = dict[str, Array]  # of a cell
CAPTURES = ("residual",)  # names that `apply` can capture


@dataclass(frozen=True)
class Config:
    """The architecture; frozen and hashable, a static argument of jit.

    Attributes:
        vocab_size: Number of tokens. A run takes that of its vocabulary.
        cell: Kind of recurrent cell.
        d_model: Width of embeddings and states.
        n_layers: Number of cells, one on top of the other.
        dropout: Share of embeddings and layer outputs set to 0, in training only, never in the state (Zaremba 2014).
    """

    vocab_size: int = 11
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    d_model: int = 64
    n_layers: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        config.check(self)


def max_tokens(cfg: Config) -> None:
    """Return None: the number of tokens of a row has no bound."""
    return None


def unstack(params: Params) -> Params:
    """Return the parameters as they are: a step scans over the layers."""
    return params


def init(key: Array, cfg: Config) -> Params:
    """Return parameters, a nested dict of float arrays; those of the cells have a leading axis of layers."""
    embedding_key, cells_key, head_key = jax.random.split(key, 3)
    tokens_BT = jnp.zeros((1, 1), jnp.int32)
    return {
        "embedding": _embedding(cfg).init(embedding_key, tokens_BT)["params"],
        "cells": jax.vmap(lambda key: _init_cell(key, cfg))(jax.random.split(cells_key, cfg.n_layers)),
        "head": Head(cfg.vocab_size).init(head_key, jnp.zeros((1, 1, cfg.d_model)))["params"],
    }


def apply(
    params: Params, tokens_BT: Array, cfg: Config, *, key: Array | None = None, lengths_B: Array | None = None,
    capture: tuple[str, ...] = ()
) -> Any:  # fmt: skip
    """Return the logits of the next token at every position, (B, T, V).

    Computes in the dtype of the parameters.

    Args:
        params: Parameters, see `init`.
        tokens_BT: Rows of tokens, int32, 0 to vocab_size - 1; as in `model.apply`.
        cfg: Config of the model.
        key: Randomness of dropout. Without a key there is no dropout.
        lengths_B: Lengths of right-padded rows. Padding changes nothing.
        capture: ("residual",) for the embeddings and the states of each layer, (L+1)BTD; then (logits_BTV, {name:
            array}) is returned.

    Raises:
        ValueError: If tokens_BT are no rows of integers; for an unknown name to capture.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    config.check_capture(capture, CAPTURES)
    B, T = tokens_BT.shape
    cache = init_cache(cfg, B, T, params["embedding"]["table"].dtype)
    logits_BTV, _, streams = _run(params, tokens_BT, cache, cfg, key, lengths_B)
    return (logits_BTV, {"residual": jnp.stack(streams).swapaxes(1, 2)}) if capture else logits_BTV


def init_cache(cfg: Config, batch_size: int, length: int, dtype: Any = float) -> Cache:
    """Return the state before the first token: a dict, batch first in every leaf.

    Its size is constant: `length` is ignored, and rows may have any length.
    """
    names, shape_BD = ("hidden", "cell") if cfg.cell == "lstm" else ("hidden",), (batch_size, cfg.d_model)
    return {"layers": [{name: jnp.zeros(shape_BD, dtype) for name in names} for _ in range(cfg.n_layers)]}


def extend(
    params: Params, tokens_BT: Array, cache: Cache, cfg: Config, *, lengths_B: Array | None = None
) -> tuple[Array, Cache]:
    """Return the logits of new tokens after those in the cache, and the cache with them.

    For prefill and single steps alike. `lengths_B` is the number of real new tokens in each row, possibly none.
    """
    config.check_tokens("tokens_BT", tokens_BT)
    return _run(params, tokens_BT, cache, cfg, None, lengths_B)[:2]


def _rnn(params: Params, state: State, x_BD: Array) -> State:
    return {"hidden": jnp.tanh(_sum(params["candidate"], x_BD, state["hidden"]))}


def _gru(params: Params, state: State, x_BD: Array) -> State:
    h_BD, candidate = state["hidden"], params["candidate"]
    r_BD, z_BD = (jax.nn.sigmoid(_sum(params[f"{gate}_gate"], x_BD, h_BD)) for gate in ("reset", "update"))
    n_BD = jnp.tanh(_affine(candidate["input"], x_BD) + r_BD * _affine(candidate["hidden"], h_BD))
    return {"hidden": (1.0 - z_BD) * n_BD + z_BD * h_BD}


def _lstm(params: Params, state: State, x_BD: Array) -> State:
    h_BD, c_BD = state["hidden"], state["cell"]
    gates = (jax.nn.sigmoid(_sum(params[f"{gate}_gate"], x_BD, h_BD)) for gate in ("input", "forget", "output"))
    i_BD, f_BD, o_BD = gates
    c_BD = f_BD * c_BD + i_BD * jnp.tanh(_sum(params["candidate"], x_BD, h_BD))
    return {"hidden": o_BD * jnp.tanh(c_BD), "cell": c_BD}


_CELLS: dict[str, Callable[[Params, State, Array], State]] = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}
_PARTS = {
    "rnn": ("candidate",),
    "gru": ("candidate", "reset_gate", "update_gate"),
    "lstm": ("candidate", "input_gate", "forget_gate", "output_gate"),
}


def _sum(params: Params, x_BD: Array, h_BD: Array) -> Array:
    """Return W x + b + U h."""
    return _affine(params["input"], x_BD) + _affine(params["hidden"], h_BD)


def _affine(params: Params, x_BD: Array) -> Array:
    y_BD = jnp.einsum("BD,DE->BE", x_BD, params["weight"])
    return y_BD + params["bias"][None] if "bias" in params else y_BD


def _init_cell(key: Array, cfg: Config) -> Params:
    """Return the parameters of a cell: W is Glorot-initialised and U orthogonal (Saxe et al. 2014)."""
    names, shape = _PARTS[cfg.cell], (cfg.d_model, cfg.d_model)
    input_keys, hidden_keys = jax.vmap(jax.random.split)(jax.random.split(key, len(names))).T
    # In one call: four decompositions that XLA began at once waited for each other for ever, in 4 of 8 processes on two
    # cores (jaxlib 0.10.2).
    hidden = jax.vmap(lambda key: nn.initializers.orthogonal()(key, shape))(hidden_keys)
    cell = {}
    for name, input_key, weight in zip(names, input_keys, hidden, strict=True):
        # An open forget gate lets gradients through from the start (Jozefowicz et al. 2015).
        bias = jnp.full(cfg.d_model, 1.0 if name == "forget_gate" else 0.0, jnp.result_type(float))
        affine = {"weight": nn.initializers.xavier_uniform()(input_key, shape), "bias": bias}
        cell[name] = {"input": affine, "hidden": {"weight": weight}}
    if cfg.cell == "gru":
        cell["candidate"]["hidden"]["bias"] = jnp.zeros(cfg.d_model)
    return cell


def _embedding(cfg: Config) -> Embedding:
    return Embedding(cfg.vocab_size, cfg.d_model, scale=True)


def _run(
    params: Params, tokens_BT: Array, cache: Cache, cfg: Config, key: Array | None, lengths_B: Array | None
) -> tuple[Array, Cache, list[Array]]:
    """Return logits_BTV, the cache after the last token, and [x_TBD] of the embedding and of each layer."""
    tokens_BT, real_BT = mask_padding(tokens_BT, lengths_B)
    real_TB1 = None if lengths_B is None else real_BT.T[:, :, None]
    keys = [None] * (cfg.n_layers + 1) if key is None else jax.random.split(key, cfg.n_layers + 1)
    x_BTD = _embedding(cfg).bind({"params": params["embedding"]})(tokens_BT)
    streams, layers = [_dropout(x_BTD.swapaxes(0, 1), cfg, keys[0])], []

    def step(cell_params: Params, state: State, inputs: tuple[Array, Array | None]) -> tuple[State, Array]:
        x_BD, real_B1 = inputs
        after = _CELLS[cfg.cell](cell_params, state, x_BD)
        if real_B1 is not None:  # padding does not change the state of a row
            after = jax.tree.map(lambda new_BD, old_BD: jnp.where(real_B1, new_BD, old_BD), after, state)
        return after, after["hidden"]

    leaves, structure = jax.tree.flatten(params["cells"])
    cells = map(structure.unflatten, zip(*leaves, strict=True))
    for cell_params, state, dropout_key in zip(cells, cache["layers"], keys[1:], strict=True):
        state, h_TBD = jax.lax.scan(partial(step, cell_params), state, (streams[-1], real_TB1))
        layers.append(state)
        streams.append(_dropout(h_TBD, cfg, dropout_key))
    logits_BTV = Head(cfg.vocab_size).bind({"params": params["head"]})(streams[-1].swapaxes(0, 1))
    return logits_BTV, {"layers": layers}, streams


def _dropout(x_TBD: Array, cfg: Config, key: Array | None) -> Array:
    if key is None:
        return x_TBD
    return nn.Dropout(cfg.dropout, deterministic=False).bind({}, rngs={"dropout": key})(x_TBD)
