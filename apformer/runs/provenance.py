"""Describe the origin of a result: the versions of packages, and a digest of the parameters."""

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apformer import __version__, files
from apformer.errors import UserError

OF_SHAPES = ("jax_enable_x64", "jax_default_prng_impl")  # which decide the types of what is saved, too
ENVIRONMENT = (*OF_SHAPES, "jax_threefry_partitionable", "jax_random_seed_offset")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def versions() -> dict[str, str]:
    """Return {name: version} of Python, of apformer and of the packages that a run depends on."""
    packages = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "apformer": __version__} | packages


def environment() -> dict[str, Any]:
    """Return what decides the bits of a run besides its flags: options of JAX, which the environment sets."""
    return {name: getattr(jax.config, name) for name in ENVIRONMENT}


def require_environment(path: Path, names: Sequence[str] = ENVIRONMENT) -> None:
    """Raise UserError (exit USAGE) that names a variable of the environment under which a run was trained otherwise."""
    file = path / "config.json"
    config: Any = files.read_json(file) if file.exists() else None
    told = config["environment"] if files.has(config, {"environment": dict}) else {}
    for name, value in environment().items():
        if name in names and told.get(name, value) != value:
            raise UserError(
                f"{path} was trained under {name.upper()}={told[name]}, and here it is {value}"
                ": set this variable of the environment as it was"
            )


def digest(params: Any) -> str:
    """Return the sha256 of parameters."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(params)):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def surroundings(params: Any) -> dict[str, Any]:
    """Return what floating-point results depend on."""
    device = jax.devices()[0]
    return {
        "dtype": ", ".join(sorted({str(leaf.dtype) for leaf in jax.tree.leaves(params)})),
        "matmul_precision": "highest",
        "backend": device.platform,
        "device": device.device_kind,
        "versions": versions(),
    }
