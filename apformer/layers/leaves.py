"""What each parameter is: a matrix with its input and output axes, a gain, a bias or a table; and whether it decays.

The optimizer asks which leaves decay and which are matrices; the adapters ask for the matrices. A leaf is known by the
last name of its path. A position scheme declares its own. A name that nobody declared is an error.
"""

from typing import NamedTuple

from apformer.layers import position


class Role(NamedTuple):
    """Whether weight decay reaches a leaf, and the axes of a matrix.

    Axes are counted from the end, because the parameters of the blocks are stacked on a leading layer axis.
    """

    decays: bool
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


BIAS = Role(decays=False)
GAIN = Role(decays=False)
EMBEDDING = Role(decays=True)
POSITION_TABLE = Role(decays=False)
FACTOR = Role(decays=True)

LEAVES = {
    **dict.fromkeys(("query", "key", "value"), Role(True, inputs=(-3,), outputs=(-2, -1))),  # D -> H K
    "output": Role(True, inputs=(-3, -2), outputs=(-1,)),  # H K -> D; word2vec's second table has this name too
    "weight": Role(True, inputs=(-2,), outputs=(-1,)),  # D -> F, F -> D, D -> V, and D -> D in a cell
    **dict.fromkeys(("bias", "query_bias", "key_bias", "value_bias", "output_bias"), BIAS),
    "scale": GAIN,
    "gain": GAIN,  # of cosine scores
    "vector": GAIN,  # of additive scores
    "sink": BIAS,
    "table": EMBEDDING,
    "input": EMBEDDING,  # word2vec
    **dict.fromkeys(("A", "B"), FACTOR),  # of an adapter
}


def role(path):
    """The Role of the leaf at a path of jax.tree_util. Raises ValueError for a leaf that nobody declared."""
    *owners, name = (entry.key for entry in path)
    owner = owners[-1] if owners else None
    if owner in position.names():  # a scheme that acts inside attention says what its parameters are
        known = position.parameters(position.load(owner)).get(name, LEAVES.get(name))
    else:
        known = POSITION_TABLE if owner == "position" else LEAVES.get(name)
    if known is None:
        full_name = "/".join([*owners, name])
        raise ValueError(f"parameter {full_name} has no role: declare it in layers/leaves.py or in its position scheme")
    return known


def matrix(path):
    """The Role of a matrix inside a block or a cell; None for every other leaf."""
    found = role(path)
    return found if found.inputs and {entry.key for entry in path} & {"blocks", "cells"} else None
