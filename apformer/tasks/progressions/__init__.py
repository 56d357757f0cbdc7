"""Arithmetic progressions with terms of a fixed width."""
