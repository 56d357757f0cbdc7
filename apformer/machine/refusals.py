"""Sentences about what the memory, JAX or its environment refuses."""

import os
import re
import sys


def of_machine(error: Exception) -> str | None:
    """Return a sentence about an error of which the memory, JAX or its environment is the cause; None of another."""
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or re.search("RESOURCE_EXHAUSTED|[Oo]ut of memory", said):
        less = "a smaller --batch_size with more --accumulate, --remat, or fewer of what the command makes at once"
        return f"there is not enough memory ({said[:200] or 'MemoryError'}): give {less}"
    return without_backend() if "jax" in sys.modules else None


def without_backend() -> str | None:
    """Return a sentence that says why JAX has no device here; None where it has."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:  # the first where a plugin of an accelerator is not installed
        asked = os.environ.get("JAX_PLATFORMS", "")
        reason = str(error).partition("\n")[0] or f"no platform of JAX_PLATFORMS={asked} is here"
        return f"JAX does not start ({reason}): set JAX_PLATFORMS=cpu, or mend its installation"
