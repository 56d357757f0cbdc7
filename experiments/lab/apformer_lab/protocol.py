"""Ready-made names of the task protocol for tasks of rows: `from apformer_lab.protocol import *`.

A task replaces some of them with its own after the import.
"""

from apformer.tasks import defaults
from apformer.tasks.defaults import *  # noqa: F403
from apformer_lab.continuation import predict
from apformer_lab.evaluation import evaluate
from apformer_lab.page import page
from apformer_lab.training import NOT_COMPILED, Options, check, example, make_loss, sample, validation

__all__ = [
    "ARCHITECTURES",
    "NOT_COMPILED",
    "Options",
    "check",
    "evaluate",
    "example",
    "make_loss",
    "page",
]
__all__ += ["predict", "sample", "validation"]
__all__ += defaults.__all__

ARCHITECTURES = ("sparse",)
