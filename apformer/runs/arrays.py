"""Turn the state of a run into arrays by their names, such as "params/head/w", and those into one array of bytes."""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apformer.errors import NON_FINITE, UserError

Arrays = dict[str, np.ndarray]


def leaves_of(state: Any) -> tuple[dict[str, Any], Any]:
    """Return ({"params/w": leaf}, treedef) of a tree of arrays and typed keys."""
    flat, treedef = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in flat}, treedef


def signature(leaves: dict[str, Any]) -> dict[str, str]:
    """Return {"params/w": "float32[3, 4]"}."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in leaves.items()}


def is_key(leaf: Any) -> bool:
    """Return whether a leaf is an array of typed random keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def on_host(leaves: dict[str, Any]) -> Arrays:
    """Return the arrays of the leaves in numpy, those of no elements left out; of random keys their data."""
    data = {name: jax.random.key_data(leaf) if is_key(leaf) else leaf for name, leaf in leaves.items()}
    return {name: np.asarray(array) for name, array in sorted(jax.device_get(data).items()) if array.size}


def like(leaves: dict[str, Any]) -> Arrays:
    """Return arrays of the shapes and dtypes that `on_host` gives; their numbers mean nothing."""
    data = {name: jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf for name, leaf in leaves.items()}
    return {name: np.empty(leaf.shape, leaf.dtype) for name, leaf in sorted(data.items()) if leaf.size}


def on_device(array: np.ndarray | None, leaf: Any, key_impl: str | None) -> jax.Array:
    """Return a leaf from its array; None stands for one of no elements."""
    found = jnp.zeros(leaf.shape, leaf.dtype) if array is None else jax.device_put(array, may_alias=False)
    return found if key_impl is None else jax.random.wrap_key_data(found, impl=key_impl)


def digest(arrays: Arrays) -> str:
    """Return the sha256 of the names, types, shapes and bytes of arrays."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype}{list(array.shape)}\n".encode())
        found.update(_bytes(array))
    return found.hexdigest()


def pack(arrays: Arrays) -> np.ndarray:
    """Return the bytes of all arrays, one after the other."""
    return np.concatenate([_bytes(array) for array in arrays.values()])


def unpack(data: np.ndarray, arrays: Arrays) -> Arrays:
    """Return the arrays whose bytes `pack` gave; their shapes and dtypes are those of `arrays`."""
    parts = np.split(data, np.cumsum([array.nbytes for array in arrays.values()]))
    return {
        name: part.view(array.dtype).reshape(array.shape)
        for (name, array), part in zip(arrays.items(), parts, strict=False)
    }


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def finite_members(arrays: Arrays, members: int, step: int) -> np.ndarray:
    """Return whether each member has finite parameters, and no NaN in the optimizer's state, (M,).

    Raises:
        UserError: NON_FINITE, if none has; it names an array.
    """
    finite_M = np.ones(members, bool)
    for name, array in arrays.items():
        part = name.split("/")[0]
        if part not in ("params", "opt_state") or not jax.dtypes.issubdtype(array.dtype, np.inexact):
            continue
        array_MN = array.reshape(members, -1)
        finite_M &= np.isfinite(array_MN).all(1) if part == "params" else ~np.isnan(array_MN).any(1)
        if not finite_M.any():
            remedy = "nothing was saved: lower --learning_rate, and go on from the checkpoint before"
            raise UserError(f"step {step}: {name} holds numbers that are not finite; {remedy}", NON_FINITE)
    return finite_M
