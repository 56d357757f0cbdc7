"""The residual block, and a stack of blocks.

    pre-norm     x + sublayer(norm(x))         GPT-2; Xiong et al. 2020
    post-norm    norm(x + sublayer(x))         Vaswani et al. 2017, figure 1

Two sub-layers, attention then feed-forward. A decoder that reads a source has cross-attention between the two.

The parameters of a stack have a leading axis of layers. A scan over it compiles one block, whatever the depth. It would
copy each layer out of the stack in every step of generation, which cuts the stack into a list once instead.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import attention
from apformer.layers.feedforward import FeedForward
from apformer.layers.masks import View, causal_mask
from apformer.layers.norm import LayerNorm, RMSNorm

Norm = Callable[[Array], Array]


class Block(nn.Module):
    """One layer of a transformer."""

    cfg: Any  # of the model
    cross: Callable[..., Any] | None = None  # `cross_attention.CrossAttention`, in a decoder that reads a source

    @nn.compact
    def __call__(self, x_BTD: Array, view: View, cache: Any = None, source: Any = None) -> tuple[Array, Any, Any]:
        """Return (x_BTD, {name of an attention: its weights}, the cache of this layer).

        Without `residual` the output of a sub-layer replaces x. Without `feedforward` a block is its attention.
        """
        cfg, weights = self.cfg, {}
        dropout = nn.Dropout(cfg.dropout, deterministic=not self.has_rng("dropout"), name="dropout")

        def before(norm: Norm, x_BTD: Array) -> Array:
            return norm(x_BTD) if cfg.norm_position == "pre" else x_BTD

        def after(norm: Norm, x_BTD: Array, y_BTD: Array) -> Array:
            y_BTD = x_BTD + dropout(y_BTD) if cfg.residual else dropout(y_BTD)
            return norm(y_BTD) if cfg.norm_position == "post" else y_BTD

        norm, attend = norm_of(cfg, "attention_norm"), attention.Attention(cfg, name="attention")
        y_BTD, weights["attention"], cache = attend(before(norm, x_BTD), view, cache)
        x_BTD = after(norm, x_BTD, y_BTD)
        if self.cross is not None:
            norm, read = norm_of(cfg, "cross_attention_norm"), self.cross(cfg, name="cross_attention")
            y_BTD, weights["cross_attention"] = read(before(norm, x_BTD), view, source)
            x_BTD = after(norm, x_BTD, y_BTD)
        if cfg.feedforward:
            norm = norm_of(cfg, "feedforward_norm") if cfg.feedforward_norm else lambda x_BTD: x_BTD
            feedforward = FeedForward(cfg.d_ff or 4 * cfg.d_model, cfg.activation, name="feedforward")
            x_BTD = after(norm, x_BTD, feedforward(before(norm, x_BTD)))
        return x_BTD, weights, cache


def whole_view(positions_BT: Array, window: int | None = None) -> View:
    """Return the view of whole rows, of which each token sees those before it."""
    mask_BTS = causal_mask(positions_BT, positions_BT, window)
    return View(mask_BTS, positions_BT, positions_BT, positions_BT, attention)


def norm_of(cfg: Any, name: str) -> Norm:
    """Return the norm of a Config: LayerNorm, RMSNorm or the identity."""
    if cfg.norm == "none":
        return lambda x_BTD: x_BTD
    return (RMSNorm if cfg.norm == "rms" else LayerNorm)(cfg.norm_epsilon, name=name)


def init_blocks(key: Array, cfg: Any, cross: Any = None, source: Any = None) -> dict[str, Any]:
    """Return the parameters of all blocks, with a leading axis of layers; cross and source as in `apply_blocks`."""
    x_BTD, view = jnp.zeros((1, 1, cfg.d_model)), whole_view(jnp.zeros((1, 1), jnp.int32))
    keys_L = jax.random.split(key, cfg.n_layers)
    return jax.vmap(lambda key: Block(cfg, cross).init(key, x_BTD, view, None, source)["params"])(keys_L)


def apply_blocks(
    params: dict[str, Any], x_BTD: Array, view: View, cfg: Any, key: Array | None = None,
    capture: tuple[str, ...] = (), remat: bool = False, cross: Any = None, source: Any = None
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """Return the output of the last block, and {name: what was captured, with a leading axis of layers}.

    `capture` takes names of attention weights, and "residual" for the input and the output of each block. `cross` and
    `source` are the cross-attention of a decoder and what it reads. `key` and `remat` are as in `model.apply`.
    """
    (n_layers,) = {leaf.shape[0] for leaf in jax.tree.leaves(params)}
    if key is not None:
        x_BTD = nn.Dropout(cfg.dropout, deterministic=False).apply({}, x_BTD, rngs={"dropout": key})

    def step(x_BTD: Array, layer: Any) -> Any:
        layer_params, layer_key = layer
        rngs = None if key is None else {"dropout": layer_key}
        y_BTD, weights, _ = Block(cfg, cross).apply({"params": layer_params}, x_BTD, view, None, source, rngs=rngs)
        captured = weights | {"residual": y_BTD}
        return y_BTD, {name: captured[name] for name in capture}

    keys_L = None if key is None else jax.random.split(key, n_layers)
    # A loop compiles faster, straight code runs faster, but undoes remat.
    unroll = 1 if remat or n_layers > 4 else n_layers
    y_BTD, captured = jax.lax.scan(jax.checkpoint(step) if remat else step, x_BTD, (params, keys_L), unroll=unroll)
    if "residual" in capture:
        captured["residual"] = jnp.concatenate([x_BTD[None], captured["residual"]])
    return y_BTD, captured


def extend_blocks(
    blocks: list[Any], x_BTD: Array, view: View, caches: list[Any], cfg: Any, cross: Any = None, sources: Any = None
) -> tuple[Array, list[Any]]:
    """Return the output of the last of a list of blocks, and the caches of all with the new keys and values."""
    written = []
    for params, cache, source in zip(blocks, caches, sources or [None] * len(blocks), strict=True):
        x_BTD, _, cache = Block(cfg, cross).apply({"params": params}, x_BTD, view, cache, source)
        written.append(cache)
    return x_BTD, written


def unstack(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a decoder with its blocks as a list of layers, which `extend` reads without a copy.

    A list stays as it is. Under jit, call it once, outside the loop over the tokens.
    """
    if isinstance(params["blocks"], list):
        return params
    (n_layers,) = {leaf.shape[0] for leaf in jax.tree.leaves(params["blocks"])}
    blocks = [jax.tree.map(lambda stacked, layer=layer: stacked[layer], params["blocks"]) for layer in range(n_layers)]
    return params | {"blocks": blocks}
