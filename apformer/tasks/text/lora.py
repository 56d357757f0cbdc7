"""Low-rank adapters: each matrix is frozen, and a product of two thin trained matrices is added to it.

    W = W_0 + alpha / r A B          A: inputs to r, drawn at random          B: r to outputs, 0 at first

Hu et al. 2021 multiply vectors from the right: their B A is our A B. The matrices of blocks and cells have factors
(queries, keys, values, output, feed-forward); embeddings, biases and norms have none. The optimizer holds running means
of the factors alone. Their gradients are products with the gradient of the merged matrix.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from apformer.layers import leaves

ATTENTION = ("query", "key", "value")  # together GPT-2's matrix c_attn, which `peft` adapts by default


def init(key: jax.Array, params: Any, rank: int, on: str = "all") -> Any:
    """Return factors whose product is 0: a tree like params, of {"A": (L, inputs, R), "B": (L, R, outputs)} or None.

    None stands for leaves that are not adapted. Attention has two axes, heads and their width, as inputs or outputs.

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
    """Merge adapters into params: return W_0 + scale A B in place of each matrix W_0 that has factors."""

    def merged(W: jax.Array, factors: dict | None) -> jax.Array:
        if factors is None:
            return W
        L, rank = len(W), factors["A"].shape[-1]
        A_LIR, B_LRO = factors["A"].reshape(L, -1, rank), factors["B"].reshape(L, rank, -1)
        return W + scale * jnp.einsum("LIR,LRO->LIO", A_LIR, B_LRO).reshape(W.shape)

    return jax.tree.map(merged, params, adapters)


def freeze_base(rule: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """Return an optimizer of {"base": params, "adapters": factors} that updates the factors by `rule`.

    The gradient of the base must be 0.
    """

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        factors, state = rule.update(updates["adapters"], state, params["adapters"], **extra)
        return updates | {"adapters": factors}, state

    return optax.GradientTransformationExtraArgs(lambda params: rule.init(params["adapters"]), update)
