"""Text to tokens and back: a file a tokenizer."""
