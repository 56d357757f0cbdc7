"""The commands of apformer: a file a command."""
