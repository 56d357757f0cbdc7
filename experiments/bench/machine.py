"""Describe the machine of a measurement: its processor, its threads, and the versions of packages."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path

import apformer

PACKAGES = ("apformer", "jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers")


def processor():
    """Return the name of the processor, as the system gives it."""
    file = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*: (.+)$", file.read_text(), re.MULTILINE) if file.exists() else None
    return match[1] if match else platform.processor() or platform.machine()


def threads():
    """Return the number of threads that may run at once in this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def versions():
    """Return {package: version} of those PACKAGES that are installed; apformer is always among them."""
    installed = {found.name: found.version for found in importlib.metadata.distributions()}
    installed["apformer"] = apformer.__version__
    return {package: installed[package] for package in PACKAGES if package in installed}
