"""The parts of a transformer: small Flax modules and pure functions that know no task."""
