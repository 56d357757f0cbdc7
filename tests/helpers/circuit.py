"""Weights with which `model.apply` continues every progression exactly: for tests that need a certified model.

Nothing is trained. Of the terms y and x, layer 1 finds e_i = (2 x_i mod 10) + [x_{i-1} >= 5] - y_i at each place i, and
layer 2 writes e_j less the borrow of the nearest lower place whose e is not 0, modulo 10.
"""

import jax
import numpy as np

from apformer import model

SURE = 256.0  # by which each right logit leads; in steps of this size float32 computes without rounding
ONE, DIGIT, DOUBLE, DIFFERENCE, DECISIVE, BORROW, NEXT = range(7)  # coordinates of the residual stream
MARK = 11  # in place of a difference at a token without a digit before it


def config(digits):
    """The architecture for terms of this many digits."""
    shape = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 4, "window": digits + 3}
    parts = {"position": "relative", "similarity": "dot", "norm": "none"}
    return model.Config(**shape, **parts, output_projection=True, attention_sink=True)


def params(digits):
    """The weights for terms of this many digits: the tree of `model.init(key, config(digits))`."""
    cfg, period = config(digits), digits + 1
    offset_O, token_V = np.arange(cfg.window), np.arange(11)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), cfg))
    weights = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    digit_V, table_VD = token_V[:10], weights["embedding"]["table"]
    table_VD[:, ONE], table_VD[:, DIFFERENCE] = 1, MARK
    table_VD[:10, DIGIT], table_VD[:10, DOUBLE] = digit_V, 2 * digit_V % 10 - MARK
    table_VD[:10, DIFFERENCE] += digit_V >= 5

    def only(offset):
        return np.where(offset_O == offset, SURE, -SURE)

    lower_O, decisive = period - 2 - offset_O, SURE * digits
    nearest_O = np.where(lower_O > 0, -SURE * lower_O, -SURE - decisive)
    heads = [(0, 0, DOUBLE, DIFFERENCE, 1, only(1)), (0, 1, DIGIT, DIFFERENCE, -1, only(period + 1))]
    heads += [(1, 0, DIFFERENCE, NEXT, 1, only(period - 2)), (1, 1, BORROW, NEXT, -1, nearest_O)]
    attention, feedforward = weights["blocks"]["attention"], weights["blocks"]["feedforward"]
    for layer, head, read, write, sign, bias_O in heads:
        attention["value"][layer, read, head, 0], attention["output"][layer, head, 0, write] = 1, sign
        attention["relative"]["table"][layer, head] = bias_O
    attention["query"][1, ONE, 1, 0], attention["key"][1, DECISIVE, 1, 0] = decisive, 1
    units = [(0, -1, DIFFERENCE, 0, {BORROW: 1, DECISIVE: 1}), (0, -1, DIFFERENCE, -1, {BORROW: -1, DECISIVE: -1})]
    units += [(0, 1, DIFFERENCE, 0, {DECISIVE: 1}), (0, 1, DIFFERENCE, -1, {DECISIVE: -1})]
    units += [(1, -1, NEXT, 0, {NEXT: 10}), (1, -1, NEXT, -1, {NEXT: -10})]
    for number, (layer, sign, read, bias, writes) in enumerate(units):
        unit = number % 4
        feedforward["expand"]["weight"][layer, read, unit] = sign
        feedforward["expand"]["bias"][layer, unit] = bias
        for write, times in writes.items():
            feedforward["contract"]["weight"][layer, unit, write] = times
    head = weights["head"]["output"]
    head["weight"][NEXT], head["bias"][:] = SURE * 2 * token_V, -SURE * token_V**2  # the token nearest to NEXT
    return jax.device_put(weights)
