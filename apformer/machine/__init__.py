"""The machine: its devices, and the compiled programs on its disk."""
