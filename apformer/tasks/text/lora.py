"""Low-rank adapters: a matrix stays as it is, and the product of two thin ones, which are trained, is added to it.

    W = W_0 + alpha / r A B          A: inputs to r, drawn at random          B: r to outputs, 0 at first

Hu et al. 2021, whose x goes in from the right: their B A is our A B. There are factors for the matrices of the blocks
(queries, keys, values, output, feed-forward) and none for embeddings, biases and norms. The optimizer keeps its running
means of the factors alone; the gradient of a merged matrix is made and then multiplied by them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from apformer.layers import leaves

ATTENTION = ("query", "key", "value")  # one matrix in GPT-2, c_attn: what `peft` adapts there by default


def init(key: jax.Array, params: Any, rank: int, on: str = "all") -> Any:
    """Return factors that change nothing yet: the tree of params, {"A": (L, inputs, R), "B": (L, R, outputs)} a matrix.

    Other leaves are None. Inputs or outputs of attention are two axes, of heads and their width.

    Args:
        key: Key of the factors A.
        params: Parameters of the model.
        rank: Width R of the factors.
        on: "all", or "attention" for queries, keys and values alone.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(params)

    def factors(key: jax.Array, path: tuple, W: jax.Array) -> dict | None:
        matrix = leaves.matrix(path, W.ndim) if on == "all" or path[-1].key in ATTENTION else None
        if matrix is None:
            return None
        L, inputs, outputs = len(W), *([W.shape[axis] for axis in axes] for axes in (matrix.inputs, matrix.outputs))
        A = jax.random.normal(key, (L, *inputs, rank), W.dtype)
        return {"A": A / jnp.sqrt(A[0].size / rank).astype(W.dtype), "B": jnp.zeros((L, rank, *outputs), W.dtype)}

    keys = jax.random.split(key, len(paths))
    return tree.unflatten([factors(key, *leaf) for key, leaf in zip(keys, paths, strict=True)])


def merge(params: Any, adapters: Any, scale: float) -> Any:
    """Return parameters of the same shapes, W_0 + scale A B in place of each matrix W_0 that has factors."""

    def merged(W: jax.Array, factors: dict | None) -> jax.Array:
        if factors is None:
            return W
        L, rank = len(W), factors["A"].shape[-1]
        A_LIR, B_LRO = factors["A"].reshape(L, -1, rank), factors["B"].reshape(L, rank, -1)
        return W + scale * jnp.einsum("LIR,LRO->LIO", A_LIR, B_LRO).reshape(W.shape)

    return jax.tree.map(merged, params, adapters)


def trained_alone(rule: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer of {"base": params, "adapters": factors} that trains the factors alone."""

    def init(params: Any) -> Any:
        return rule.init(params["adapters"])

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        factors, state = rule.update(updates["adapters"], state, params["adapters"], **extra)
        return {"base": jax.tree.map(jnp.zeros_like, params["base"]), "adapters": factors}, state

    return optax.GradientTransformationExtraArgs(init, update)
