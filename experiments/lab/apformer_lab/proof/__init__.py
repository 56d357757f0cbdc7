"""The strings that a prediction depends on, for apformer.proof: numpy alone."""
