"""The laboratory of apformer: tasks, architectures and proofs that one study each is about."""
