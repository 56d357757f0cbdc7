"""The parts of a transformer: small Flax modules and pure functions that know no task.

Arrays carry their axes as a suffix, which einsum repeats: x_BTD. `apformer/README.md` has the glossary of the letters.
"""
