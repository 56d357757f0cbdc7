"""Programs that some versions of XLA compile wrongly, without a word: what they compute here.

Both are of the fusion of products and sums on a CPU, in jaxlib 0.10.2 and some later ones. The first was found in a
simulation (https://github.com/jax-ml/jax/issues/39103), the second is what a gradient of sum(f(E)) becomes.
"""

import jax
import jax.numpy as jnp
import numpy as np

REMEDY = "XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=individual_dot"
TOLERANCE = 1e-3  # relative: rounding is below 1e-5, and what is known to be wrong above 1e-3


def _rows():
    """|row|^2 of many rows, as |M row|^2 with the identity M."""
    rows = np.stack([np.arange(32_769), np.zeros(32_769), np.zeros(32_769)], axis=1).astype(np.float32)
    identity = jnp.eye(3, dtype=jnp.float32)
    found = jax.vmap(lambda row: jnp.sum((identity @ row) ** 2))
    return found, rows, np.square(rows.astype(np.float64)).sum(1)


def _square():
    """sum((E 1) * E), each sum of a row times that row."""
    matrix = 1 + np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7
    found = lambda matrix: jnp.sum(jnp.dot(matrix, jnp.ones_like(matrix)) * matrix)  # noqa: E731
    return found, matrix, np.square(matrix.astype(np.float64).sum(1)).sum()


PROGRAMS = {"sums of squared products": _rows, "a sum of products with sums": _square}


def sentence(names):
    """What to do where these programs are computed wrongly."""
    fault = f"this jaxlib computes some sums of products wrongly (test programs: {' and '.join(names)})"
    return f"{fault}: set {REMEDY}, or take another jaxlib"


def wrong():
    """The names of those programs that XLA computes wrongly here."""
    names = []
    for name, program in PROGRAMS.items():
        function, given, right = program()
        found = np.asarray(jax.jit(function)(given), np.float64)
        if not np.allclose(found, right, rtol=TOLERANCE, atol=0.0):
            names.append(name)
    return names
