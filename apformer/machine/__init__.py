"""The machine: its devices, and the process of a command on it."""
