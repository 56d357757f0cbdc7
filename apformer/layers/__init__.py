"""The parts of a transformer: small Flax modules and pure functions that know no task.

Arrays carry their axes as a suffix, which einsum repeats: x_BTD. `apformer/README.md` has the glossary of the letters.
Softmax, norms, angles and the loss are computed in at least float32, whatever the parameters are kept in.
"""

from typing import Any

import jax.numpy as jnp


def at_least_float32(dtype: Any) -> Any:
    """Return float32, or float64 for float64."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32
