"""Roles of parameters: weight decay or none, and the input and output axes of a matrix.

The last name of a parameter's path decides its role. Parameters of position schemes and of attention scores do not
decay. Other names that are not declared belong to an architecture of a package: those with two axes or more decay, not
counting the axis of stacked layers.
"""

import re
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


STACKED = r"(blocks|cells|layers)/\D"  # paths of leaves that have a leading axis of layers; in a list, a number follows
NO_DECAY, DECAYS = Role(decays=False), Role(decays=True)

LEAVES = {
    **dict.fromkeys(("query", "key", "value"), Role(True, inputs=(-3,), outputs=(-2, -1))),  # D -> H K
    "output": Role(True, inputs=(-3, -2), outputs=(-1,)),  # H K -> D; word2vec's second table has this name too
    "weight": Role(True, inputs=(-2,), outputs=(-1,)),  # D -> F, F -> D, D -> V, and D -> D in a cell
    "bias": NO_DECAY,
    "scale": NO_DECAY,
    "table": DECAYS,
    "input": DECAYS,  # word2vec
    "A": DECAYS,  # of an adapter
    "B": DECAYS,
}


def role(path: tuple[Any, ...], axes: int = 0) -> Role:
    """Return the Role of the leaf at a path of jax.tree_util. axes: its number of axes, for undeclared names."""
    *_, owner, name = names = ["", *_names(path)]
    if owner in ("position", *config.names("position")):
        return NO_DECAY
    if owner in ("attention", "cross_attention") and name not in ("query", "key", "value", "output"):
        return NO_DECAY  # a bias, a sink, or a parameter of the attention score, whatever its name
    stacked = bool(re.search(STACKED, "/".join(names)))
    return LEAVES.get(name, Role(decays=axes - stacked > 1))


def matrix(path: tuple[Any, ...], axes: int) -> Role | None:
    """Return the Role of a stack of matrices in blocks or cells; None for other leaves. axes: its number of axes."""
    leaf, inside = role(path, axes), {*_names(path)} & {"blocks", "cells"}
    return leaf if leaf.inputs and inside and axes == 1 + len(leaf.inputs + leaf.outputs) else None


def named(params: Any, separator: str = ".") -> dict[str, Any]:
    """Return {path: leaf}, in the order of the leaves; separator: between the names of a path."""
    return {separator.join(_names(path)): leaf for path, leaf in jax.tree.leaves_with_path(params)}


def _names(path: tuple[Any, ...]) -> list[str]:
    return jax.tree_util.keystr(path, simple=True, separator="/").split("/")
