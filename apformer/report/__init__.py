"""What a run shows: figures of its training and of its evaluation."""
