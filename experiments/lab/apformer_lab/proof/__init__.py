"""Lists of the strings that predictions depend on, for apformer.proof. Only numpy is needed."""
