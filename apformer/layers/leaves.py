"""Roles of parameters: weight decay or none, and the input and output axes of a matrix.

The optimizer asks for decay and matrices, adapters for matrices. A parameter is known by the last name of its path.
Parameters of position schemes and of scores of attention do not decay. Of other names that are not declared, those of
an architecture of a package, matrices decay: what has two axes or more, beside that of stacked layers.
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


STACKED = r"(blocks|cells|layers)/\D"  # leaves with a leading axis of layers, which those of a list have not
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


def role(path: tuple[Any, ...], axes: int = 0) -> Role:
    """Return the Role of the leaf at a path of jax.tree_util. axes: how many it has, by which others decay."""
    *owners, name = _names(path)
    if owners and owners[-1] in ("position", *config.names("position")):
        return KEPT
    if name not in LEAVES and owners[-1:] in (["attention"], ["cross_attention"]):
        return KEPT  # of a score
    stacked = re.search(STACKED, "/".join([*owners, name])) is not None
    return LEAVES.get(name, Role(decays=axes - stacked > 1))


def matrix(path: tuple[Any, ...], axes: int) -> Role | None:
    """Return the Role of a stack of matrices in blocks or cells; None for every other leaf. axes: how many it has."""
    found, inside = role(path, axes), {*_names(path)} & {"blocks", "cells"}
    return found if found.inputs and inside and axes == 1 + len(found.inputs + found.outputs) else None


def named(params: Any) -> dict[str, Any]:
    """Return {dotted path: leaf}, in the order of the leaves."""
    leaves = jax.tree.leaves_with_path(params)
    return {".".join(_names(path)): leaf for path, leaf in leaves}


def _names(path: tuple[Any, ...]) -> list[str]:
    return jax.tree_util.keystr(path, simple=True, separator="/").split("/")
