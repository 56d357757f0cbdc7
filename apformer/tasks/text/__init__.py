"""Language models of a text."""
