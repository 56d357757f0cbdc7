"""Roles of parameters: weight decay or none, and the input and output axes of a matrix.

The optimizer asks for decay and matrices, adapters for matrices. A parameter is known by the last name of its path.
Parameters of position schemes and of scores of attention do not decay. Any other name that is not declared is an error.
"""

from typing import Any, NamedTuple

import jax

from apformer.layers import config


class Role(NamedTuple):
    """Role of a parameter.

    Axes are counted from the end, because the parameters of the blocks are stacked on a leading layer axis.
    """

    decays: bool
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


KEPT, DECAYS = Role(decays=False), Role(decays=True)

LEAVES = {
    **dict.fromkeys(("query", "key", "value"), Role(True, inputs=(-3,), outputs=(-2, -1))),  # D -> H K
    "output": Role(True, inputs=(-3, -2), outputs=(-1,)),  # H K -> D; word2vec's second table has this name too
    "weight": Role(True, inputs=(-2,), outputs=(-1,)),  # D -> F, F -> D, D -> V, and D -> D in a cell
    **dict.fromkeys(("bias", "query_bias", "key_bias", "value_bias", "output_bias"), KEPT),
    "scale": KEPT,
    "sink": KEPT,
    "table": DECAYS,
    "input": DECAYS,  # word2vec
    **dict.fromkeys(("A", "B"), DECAYS),  # of an adapter
}


def role(path: tuple[Any, ...]) -> Role:
    """Return the Role of the leaf at a path of jax.tree_util. Raises ValueError for a name that is not declared."""
    *owners, name = (entry.key for entry in path)
    if owners and owners[-1] in ("position", *config.names("position")):
        return KEPT
    if name not in LEAVES and owners[-1:] in (["attention"], ["cross_attention"]):
        return KEPT  # of a score
    if name not in LEAVES:
        raise ValueError(f"parameter {'/'.join([*owners, name])} has no role: declare it in layers/leaves.py")
    return LEAVES[name]


def matrix(path: tuple[Any, ...]) -> Role | None:
    """Return the Role of a matrix inside a block or a cell; None for every other leaf."""
    found = role(path)
    return found if found.inputs and {entry.key for entry in path} & {"blocks", "cells"} else None


def named(params: Any) -> dict[str, Any]:
    """Return {dotted path: leaf}, in the order of the leaves."""
    leaves = jax.tree.leaves_with_path(params)
    return {".".join(entry.key for entry in path): leaf for path, leaf in leaves}
