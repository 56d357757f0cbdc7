"""Import and export of models, one module for each format."""
