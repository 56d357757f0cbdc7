"""Analyses of trained models: ablation, the logit lens, principal components, and the certificate."""
