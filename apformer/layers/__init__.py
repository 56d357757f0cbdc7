"""The parts of a transformer: small Flax modules and pure functions that know no task.

Arrays carry their axes as a suffix, which einsum repeats: x_BTD. `apformer/README.md` has the glossary of the letters.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Tokens = jax.Array | np.ndarray
Params = dict[str, Any]  # nested, by name
Cache = dict[str, Any]  # of `extend`, batch first in every leaf
Function = Callable[..., Any]
PLAIN = os.environ.get("APFORMER_PLAIN", "0") != "0"  # whether to leave out the faster derivatives of fast.py


def at_least_float32(dtype: Any) -> Any:
    """Return the dtype of softmax, norms, angles and the loss: float32, or float64 for float64."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def precise(x: jax.Array) -> jax.Array:
    """Return an array in at least float32."""
    return x.astype(at_least_float32(x.dtype))


def derivative(rule: str) -> Callable[[Function], Function]:
    """Return a decorator that gives a function the derivative `rule` of fast.py; its `__wrapped__` is plain."""

    def decorate(plain: Function) -> Function:
        def derive(primals: Any, tangents: Any) -> Any:
            from apformer.layers import fast

            return getattr(fast, rule)(plain, primals, tangents)

        faster = jax.custom_jvp(plain)
        faster.defjvp(derive)
        return wraps(plain)(lambda *args: plain(*args) if PLAIN else faster(*args))

    return decorate
