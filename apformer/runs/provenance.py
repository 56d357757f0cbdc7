"""Describe the origin of a result: the versions of packages, and a digest of the parameters."""

import hashlib
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from apformer import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def versions() -> dict[str, str]:
    """Return {name: version} of Python, of apformer and of the packages that a run depends on."""
    packages = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "apformer": __version__} | packages


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
