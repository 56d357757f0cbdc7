"""Analyses of trained models: ablation, principal components, and the certificate."""
