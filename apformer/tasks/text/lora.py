"""Low-rank adapters: what a matrix learns in fine-tuning is the product of two thin ones, and the matrix itself stays.

    W = W_0 + alpha / r A B          A: inputs to r, drawn at random          B: r to outputs, 0 at first

Hu et al. 2021, whose x goes in from the right: their B A is our A B. There are factors for the matrices of the blocks
(queries, keys, values, output, feed-forward) and none for embeddings, biases and norms. The optimizer keeps its running
means of the factors alone; the gradient of a merged matrix is made and then multiplied by them.
"""

import jax
import jax.numpy as jnp
import optax

from apformer.layers import leaves

ATTENTION = ("query", "key", "value")  # one matrix in GPT-2, c_attn: what `peft` adapts there by default


def init(key, params, rank, on="all"):
    """Factors that change nothing yet: the tree of params, {"A": (L, inputs, R), "B": (L, R, outputs)} for a matrix.

    What is not adapted is None. Inputs or outputs of attention are two axes, of heads and their width. on: "all", or
    "attention" for queries, keys and values alone.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(params)
    keys = jax.random.split(key, len(paths))
    matrices = [(_adapted(path, on), W) for path, W in paths]
    factors = [
        None if matrix is None else _factors(key, W, matrix, rank)
        for key, (matrix, W) in zip(keys, matrices, strict=True)
    ]
    return tree.unflatten(factors)


def _adapted(path, on):
    return leaves.matrix(path) if on == "all" or path[-1].key in ATTENTION else None


def _factors(key, W, matrix, rank):
    L, inputs, outputs = len(W), *([W.shape[axis] for axis in axes] for axes in (matrix.inputs, matrix.outputs))
    A = jax.random.normal(key, (L, *inputs, rank), W.dtype)
    return {"A": A / jnp.sqrt(A[0].size / rank).astype(W.dtype), "B": jnp.zeros((L, rank, *outputs), W.dtype)}


def merge(params, adapters, scale):
    """Parameters of the same shapes, W_0 + scale A B in place of each matrix W_0 that has factors."""

    def merged(W, factors):
        if factors is None:
            return W
        L, rank = len(W), factors["A"].shape[-1]
        A_LIR, B_LRO = factors["A"].reshape(L, -1, rank), factors["B"].reshape(L, rank, -1)
        return W + scale * jnp.einsum("LIR,LRO->LIO", A_LIR, B_LRO).reshape(W.shape)

    return jax.tree.map(merged, params, adapters)


def trained_alone(rule):
    """The optimizer of {"base": params, "adapters": factors} that trains the factors and leaves the base as it is."""

    def init(params):
        return rule.init(params["adapters"])

    def update(gradients, state, params, **extra):
        updates, state = rule.update(gradients["adapters"], state, params["adapters"], **extra)
        return {"base": jax.tree.map(jnp.zeros_like, params["base"]), "adapters": updates}, state

    return optax.GradientTransformationExtraArgs(init, update)
