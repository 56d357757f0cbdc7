"""apformer: transformers that learn arithmetic progressions, and the family they belong to. Map: README.md here."""

__version__ = "0.3.0"
