"""The parameters of the blocks: one stack on a leading layer axis, or a list with those of each layer.

A scan over the layers compiles one block whatever the depth, and wants the stack. A single step of generation only has
the time to read every parameter once, and wants the list: what is cut out of a stack is copied at every step, unless it
is cut out before the first.
"""

import jax


def unstack(params):
    """The parameters of a decoder with its blocks as a list of layers, which `extend` reads without copying them.

    A list stays as it is. Under jit, call it once, outside the loop over the tokens.
    """
    if isinstance(params["blocks"], list):
        return params
    (n_layers,) = {leaf.shape[0] for leaf in jax.tree.leaves(params["blocks"])}
    blocks = [jax.tree.map(lambda stacked, layer=layer: stacked[layer], params["blocks"]) for layer in range(n_layers)]
    return params | {"blocks": blocks}
