"""The machine that a measurement was made on: its processor, its threads, and the versions of what ran there."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path

import apformer

PACKAGES = ("apformer", "jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers")


def processor():
    """The name of the processor, as the system gives it."""
    file = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*: (.+)$", file.read_text(), re.MULTILINE) if file.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


def threads():
    """How many threads may run at once in this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def versions():
    """{package: version} of apformer, and of what else is installed."""
    installed = {found.name: found.version for found in importlib.metadata.distributions()}
    installed["apformer"] = apformer.__version__
    return {package: installed[package] for package in PACKAGES if package in installed}
