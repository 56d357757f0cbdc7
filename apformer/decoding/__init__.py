"""Continue texts with a model whose parameters are bound."""
