"""The tasks: pure samplers and readers that know no model."""
