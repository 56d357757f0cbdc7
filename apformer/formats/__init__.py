"""Models in and out: a file a format."""
