"""Look into a decoder through its residual stream: the logit lens, and activation patching.

lens     logits_l = norm(x_l) W_out + b              predict from the state after layer l (nostalgebraist 2020)
patch    x_l <- edit(x_l), then the layers above     find the activations that an answer depends on (Meng et al. 2022)
"""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from apformer import model
from apformer.errors import UserError
from apformer.layers.block import apply_blocks
from apformer.layers.embedding import read_out
from apformer.layers.masks import whole_view


def lens(params: model.Params, tokens_BT: Array, cfg: model.Config) -> Array:
    """Return the logits read out of the residual stream before, between and after the blocks, (L + 1, B, T, V)."""
    _, captured = model.apply(params, tokens_BT, cfg, capture=("residual",))
    return jnp.stack([read_out(params, x_BTD, cfg) for x_BTD in captured["residual"]])


def patch(
    params: model.Params, tokens_BT: Array, cfg: model.Config, layer: int, edit: Callable[[Array], Array]
) -> Array:
    """Return the logits (B, T, V) after an edit of the residual stream.

    For example, replace position 3 by its state for other tokens: `x_BTD.at[:, 3].set(other_BTD[:, 3])`.

    Args:
        params: Parameters of a decoder.
        tokens_BT: Tokens.
        cfg: Its Config.
        layer: Layer before which x_BTD is edited, from 0; n_layers for the state after the last.
        edit: Function of x_BTD that returns the edited state.

    Raises:
        UserError: If the model has no such layer.
    """
    if not 0 <= layer <= cfg.n_layers:
        raise UserError(f"layer {layer} is out of range: give 0 to {cfg.n_layers}")
    _, captured = model.apply(params, tokens_BT, cfg, capture=("residual",))
    x_BTD, above = edit(captured["residual"][layer]), cfg.n_layers - layer
    if above:
        blocks = jax.tree.map(lambda leaf: leaf[layer:], params["blocks"])
        view = whole_view(jnp.arange(tokens_BT.shape[1])[None], cfg.window)
        x_BTD, _ = apply_blocks(blocks, x_BTD, view, replace(cfg, n_layers=above))
    return read_out(params, x_BTD, cfg)
