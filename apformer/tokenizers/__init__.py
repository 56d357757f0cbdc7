"""Tokenizers, from a text to tokens and back."""
