"""Blocks on top of each other. Their parameters are one stack, with an axis of layers in front, or a list of layers.

A scan over the stack compiles one block, whatever the depth. Training uses it. A step of generation reads each
parameter once, so a copy would double its time. A scan copies each layer out of the stack in every step. So generation
cuts the stack into a list once, before its first step.
"""

import jax
import jax.numpy as jnp


def unstack(params):
    """The parameters of a decoder with its blocks as a list of layers, which `extend` reads without copying them.

    A list stays as it is. Under jit, call it once, outside the loop over the tokens.
    """
    if isinstance(params["blocks"], list):
        return params
    (n_layers,) = {leaf.shape[0] for leaf in jax.tree.leaves(params["blocks"])}
    blocks = [jax.tree.map(lambda stacked, layer=layer: stacked[layer], params["blocks"]) for layer in range(n_layers)]
    return params | {"blocks": blocks}


def scan(block, params, x_BTD, key, capture, remat=False):
    """What a stack of blocks makes of x_BTD: (y_BTD, {name: what was captured, layers first}).

    block(params, x_BTD, rngs, number) -> (y_BTD, {name: attention weights}), of the layer of that number, from 0.
    "residual" captures x_BTD and what each block makes of it. Each layer has a key of its own. remat: compute the
    inside of the blocks anew for the gradient.
    """
    (n_layers,) = {leaf.shape[0] for leaf in jax.tree.leaves(params)}

    def step(x_BTD, layer):
        layer_params, layer_key, number = layer
        y_BTD, weights = block(layer_params, x_BTD, None if key is None else {"dropout": layer_key}, number)
        captured = weights | {"residual": y_BTD}
        return y_BTD, {name: captured[name] for name in capture}

    keys_L = None if key is None else jax.random.split(key, n_layers)
    # A loop compiles faster, straight code runs faster, but undoes remat.
    unroll = 1 if remat or n_layers > 4 else n_layers
    step = jax.checkpoint(step) if remat else step
    y_BTD, captured = jax.lax.scan(step, x_BTD, (params, keys_L, jnp.arange(n_layers)), unroll=unroll)
    if "residual" in capture:
        captured["residual"] = jnp.concatenate([x_BTD[None], captured["residual"]])
    return y_BTD, captured
