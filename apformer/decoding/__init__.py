"""Continue a text with a model whose parameters are bound."""
