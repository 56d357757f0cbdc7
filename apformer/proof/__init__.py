"""Proof that a trained model makes no error, for Python and numpy alone: `export --to proof` copies these files."""
