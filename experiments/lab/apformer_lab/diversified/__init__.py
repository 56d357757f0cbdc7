"""Translators with BPE-dropout and R-Drop in training, and a memory and minimum Bayes risk in translating.

All else is `apformer.tasks.translation`.
"""
# ruff: noqa: F401, the names of the protocol

from apformer.tasks.translation import (
    ARCHITECTURES,
    EVALUATION,
    describe,
    feed,
    files,
    floor,
    init_from,
    initial_params,
    kept,
    make_optimizer,
    sample,
    train_rows,
    validation,
    whole,
)
from apformer_lab.diversified.evaluation import evaluate, example, page
from apformer_lab.diversified.training import NOT_COMPILED, RECIPES, Config, Options, check, load, make_loss
