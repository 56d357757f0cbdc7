"""A run on disk: its directory, settings, metrics and checkpoints."""
