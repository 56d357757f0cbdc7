"""What a trained model does: ablation, rounding, hand-written weights."""
