"""64-bit numbers for the whole process, which is why these tests run by themselves: pytest -m parity tests/parity."""

import jax

jax.config.update("jax_enable_x64", True)
