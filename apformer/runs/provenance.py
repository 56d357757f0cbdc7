"""Describe the origin of a result: the versions of packages, and a digest of the parameters."""

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from apformer import __version__, plugins
from apformer.errors import UserError
from apformer.runs import directory

OF_SHAPES = ("jax_enable_x64", "jax_default_prng_impl")  # these also decide the dtypes of saved arrays
ENVIRONMENT = (*OF_SHAPES, "jax_threefry_partitionable", "jax_random_seed_offset")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def versions() -> dict[str, str]:
    """Return {name: version} of Python, of apformer and of the packages that a run depends on, plugins among them."""
    packages = {package: version(package) for package in PACKAGES} | plugins.versions()
    return {"python": platform.python_version(), "apformer": __version__} | packages


def environment() -> dict[str, Any]:
    """Return the options of JAX that decide the bits of a run besides its flags; the environment sets them."""
    return {name: getattr(jax.config, name) for name in ENVIRONMENT}


def require_environment(path: Path, names: Sequence[str] = ENVIRONMENT) -> None:
    """Raise UserError (exit USAGE) for a variable of the environment that had another value in training."""
    recorded = directory.recorded(path, "environment")
    for name, value in environment().items():
        if name in names and recorded.get(name, value) != value:
            raise UserError(
                f"{path} was trained under {name.upper()}={recorded[name]}, and here it is {value}"
                ": set this variable of the environment as it was"
            )


def digest(params: Any) -> str:
    """Return the sha256 of the bytes of all parameters."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(params)):
        digest.update(leaf.tobytes())
    return digest.hexdigest()


def surroundings(params: Any) -> dict[str, Any]:
    """Return the surroundings that floating-point results depend on: dtype, precision, device and versions."""
    device = jax.devices()[0]
    return {
        "dtype": ", ".join(sorted({str(leaf.dtype) for leaf in jax.tree.leaves(params)})),
        "matmul_precision": "highest",
        "backend": device.platform,
        "device": device.device_kind,
        "versions": versions(),
    }
