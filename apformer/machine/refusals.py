"""Explain errors of the memory, of JAX, of its environment or of a package with plugins in a sentence."""

import os
import re
import sys


def explain(error: Exception) -> str | None:
    """Return a sentence about an error of the memory, of JAX, of its environment or of a package; None for others."""
    message = " ".join(str(error).split())
    if isinstance(error, MemoryError) or re.search("RESOURCE_EXHAUSTED|[Oo]ut of memory", message):
        less = "smaller sizes; in training a smaller --batch_size with more --accumulate, --remat"
        return f"there is not enough memory ({message[:200] or 'MemoryError'}): give {less}"
    if transfer := re.search(r"Disallowed [\w-]+ transfer", message):
        return f"JAX_TRANSFER_GUARD is set ({transfer[0]}), and every command transfers: unset it"
    if "jax" not in sys.modules:
        return None
    from apformer import plugins  # imported late, since it imports JAX

    return without_backend() or plugins.blame(error)


def without_backend() -> str | None:
    """Return a sentence that says why JAX has no device; None if it has one."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:  # the first if a plugin of an accelerator is not installed
        platforms = os.environ.get("JAX_PLATFORMS", "")
        reason = str(error).partition("\n")[0] or f"no platform of JAX_PLATFORMS={platforms} is here"
        return f"JAX does not start ({reason}): set JAX_PLATFORMS=cpu, or repair its installation"
