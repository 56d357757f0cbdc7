"""Attention within a window: the same numbers as the masked square gives, without what the mask hides."""
