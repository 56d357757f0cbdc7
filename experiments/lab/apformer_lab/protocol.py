"""Names of the protocol of a task that all tasks of rows share: `from apformer_lab.protocol import *`.

What a task defines after that takes their place.
"""

from apformer.tasks.defaults import (
    describe,
    feed,
    files,
    floor,
    init_from,
    initial_params,
    kept,
    load,
    make_optimizer,
    train_rows,
    whole,
)
from apformer_lab.continuation import predict
from apformer_lab.evaluation import evaluate
from apformer_lab.page import EVALUATION, page
from apformer_lab.training import NOT_COMPILED, Options, check, example, make_loss, sample, validation

__all__ = ["ARCHITECTURES", "EVALUATION", "NOT_COMPILED", "Options", "check", "describe", "evaluate"]
__all__ += ["example", "feed", "files", "floor", "init_from", "initial_params", "kept", "load", "make_loss"]
__all__ += ["make_optimizer", "page", "predict", "sample", "train_rows", "validation", "whole"]

ARCHITECTURES = ("sparse",)
