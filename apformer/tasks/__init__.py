"""What is learned, and how it is judged: a folder a task."""
