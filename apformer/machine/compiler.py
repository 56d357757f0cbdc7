"""Test programs that some versions of XLA silently compile wrongly.

In both, XLA fuses products and sums wrongly on a CPU, in jaxlib 0.10.2 and some later versions. The first was found
in a simulation (https://github.com/jax-ml/jax/issues/39103), the second is what a gradient of sum(f(E)) becomes.
"""

import jax
import jax.numpy as jnp
import numpy as np

REMEDY = "XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=individual_dot"
TOLERANCE = 1e-3  # relative: rounding is below 1e-5, and the known wrong results differ by more than 1e-3
ROWS = np.pad(np.arange(32_769, dtype=np.float32)[:, None], ((0, 0), (0, 2)))
MATRIX = 1 + np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7


def squared_rows(rows_NK: jax.Array) -> jax.Array:
    """Return |row|^2 of each row, (N,), as |M row|^2 with the identity M."""
    identity = jnp.eye(3, dtype=jnp.float32)
    return jax.vmap(lambda row_K: jnp.sum((identity @ row_K) ** 2))(rows_NK)


def rows_by_sums(matrix_NN: jax.Array) -> jax.Array:
    """Return sum((E 1) * E), the sum of each row times that row."""
    return jnp.sum(jnp.dot(matrix_NN, jnp.ones_like(matrix_NN)) * matrix_NN)


PROGRAMS = {  # {name: (function, argument, right result)}
    "sums of squared products": (squared_rows, ROWS, np.square(ROWS[:, 0].astype(np.float64))),
    "a sum of products with sums": (rows_by_sums, MATRIX, np.square(MATRIX.astype(np.float64).sum(1)).sum()),
}


def wrong() -> list[str]:
    """Return the names of the programs that XLA computes wrongly here."""
    return [
        name
        for name, (function, argument, right) in PROGRAMS.items()
        if not np.allclose(np.asarray(jax.jit(function)(argument), np.float64), right, rtol=TOLERANCE, atol=0.0)
    ]
