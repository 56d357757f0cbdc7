"""The residual block, and a stack of blocks.

    pre-norm     x + sublayer(norm(x))         GPT-2; Xiong et al. 2020
    post-norm    norm(x + sublayer(x))         Vaswani et al. 2017, figure 1

Two sub-layers, attention then feed-forward. A decoder that reads a source has cross-attention between the two.
The parameters of a stack have a leading axis of layers. A scan over it compiles one block; up to four are unrolled.
Generation reads a list of layers instead, see listed.py.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from apformer.layers import Params
from apformer.layers.attention import Attention
from apformer.layers.feedforward import FeedForward
from apformer.layers.masks import View, whole_view
from apformer.layers.norm import norm_of


class Block(nn.Module):
    """One layer of a transformer."""

    cfg: Any  # the Config of the model

    @nn.compact
    def __call__(self, x_BTD: Array, view: View, cache: Any = None, source: Any = None) -> tuple[Array, Any, Any]:
        """Return (x_BTD, {name: intermediate array}, the layer's cache). source: a `cross_attention.Source`."""
        cfg = self.cfg
        dropout = nn.Dropout(cfg.dropout, deterministic=not self.has_rng("dropout"), name="dropout")

        def norm(place: str, name: str, x_BTD: Array) -> Array:
            """Normalise, if the Config has this norm and has it at this place, "pre" or "post"."""
            left_out = cfg.norm == "none" or (name == "feedforward_norm" and not cfg.feedforward_norm)
            return x_BTD if left_out or place != cfg.norm_position else norm_of(cfg, name)(x_BTD)

        def add(x_BTD: Array, y_BTD: Array) -> Array:
            return x_BTD + dropout(y_BTD) if cfg.residual else dropout(y_BTD)

        attend = Attention(cfg, name="attention")
        y_BTD, intermediates, cache = attend(norm("pre", "attention_norm", x_BTD), view, cache)
        x_BTD = norm("post", "attention_norm", add(x_BTD, y_BTD))
        if source is not None:
            read = source.attention(cfg, name="cross_attention")
            y_BTD, intermediates["cross_attention"] = read(norm("pre", "cross_attention_norm", x_BTD), view, source)
            x_BTD = norm("post", "cross_attention_norm", add(x_BTD, y_BTD))
        if cfg.feedforward:
            feedforward = FeedForward(cfg.d_ff or 4 * cfg.d_model, cfg.activation, *view.faster[3:], name="feedforward")
            y_BTD = feedforward(norm("pre", "feedforward_norm", x_BTD), intermediates)
            x_BTD = norm("post", "feedforward_norm", add(x_BTD, y_BTD))
        return x_BTD, intermediates, cache


def init_blocks(key: Array, cfg: Any, source: Any = None) -> Params:
    """Return the parameters of all blocks, with a leading axis of layers; `source` as in `Block`."""
    x_BTD, view = jnp.zeros((1, 1, cfg.d_model)), whole_view(jnp.zeros((1, 1), jnp.int32))
    keys_L = jax.random.split(key, cfg.n_layers)
    return jax.vmap(lambda key: dict(Block(cfg).init(key, x_BTD, view, None, source)["params"]))(keys_L)


def apply_blocks(
    params: Params, x_BTD: Array, view: View, cfg: Any, key: Array | None = None,
    capture: tuple[str, ...] = (), remat: bool = False, source: Any = None
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """Return the output of the last block, and {name: captured array, with a leading axis of layers}.

    `capture` names intermediate arrays of `Block`, or "residual": the input of the first block and each block's output.
    `key` and `remat` are as in `model.apply`, `source` as in `Block`.
    """
    if key is not None:
        x_BTD = nn.Dropout(cfg.dropout, deterministic=False).bind({}, rngs={"dropout": key})(x_BTD)

    def step(x_BTD: Array, layer: Any) -> Any:
        layer_params, layer_key = layer
        rngs = None if key is None else {"dropout": layer_key}
        y_BTD, intermediates, _ = Block(cfg).bind({"params": layer_params}, rngs=rngs)(x_BTD, view, source=source)
        captured = intermediates | {"residual": y_BTD}
        return y_BTD, {name: captured[name] for name in capture}

    keys_L = None if key is None else jax.random.split(key, cfg.n_layers)
    unroll = 1 if remat or cfg.n_layers > 4 else cfg.n_layers  # unrolled: faster, but undoes remat and compiles longer
    step = jax.checkpoint(step) if remat else step
    y_BTD, captured = jax.lax.scan(step, x_BTD, (params, keys_L), length=cfg.n_layers, unroll=unroll)
    if "residual" in capture:
        captured["residual"] = jnp.concatenate([x_BTD[None], captured["residual"]])
    return y_BTD, captured


def extend_blocks(
    params: Params, x_BTD: Array, view: View, caches: list[Any], cfg: Any, sources: Any = None
) -> tuple[Array, list[Any]]:
    """Return the output of the last block, and the caches with the new keys and values; `params` is a decoder's."""
    from apformer.layers import listed  # imported late: training never needs it

    (layers, view), new_caches = listed.layers(params, view), []
    for layer, cache, source in zip(layers, caches, sources or [None] * len(layers), strict=True):
        x_BTD, _, cache = Block(cfg).bind({"params": layer})(x_BTD, view, cache, source)
        new_caches.append(cache)
    return x_BTD, new_caches
