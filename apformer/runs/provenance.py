"""Describe the origin of a result: the versions of packages, and a digest of the parameters."""

import hashlib
import importlib.metadata
import platform
from functools import cache
from typing import Any

import jax
import numpy as np

from apformer import __version__

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


@cache
def _versions() -> dict[str, str | None]:
    found = {"python": platform.python_version(), "apformer": __version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def versions() -> dict[str, str | None]:
    """Return {name: version} of Python, of apformer and of the packages that a run depends on; None: not installed."""
    return {**_versions()}  # looked up once, since every checkpoint wants them


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
