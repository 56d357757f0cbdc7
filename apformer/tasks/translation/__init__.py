"""Translation of sentences."""
