"""Arithmetic progressions with terms of any number of digits."""
