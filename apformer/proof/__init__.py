"""Prove that a trained model makes no error, in Python and numpy; `export --to proof` copies these files."""
