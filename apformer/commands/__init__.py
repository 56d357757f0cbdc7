"""The commands of apformer: one file for each command."""
