"""Translation of sentences: two texts with parallel lines, or number words.

`rows` is {"train": a Padded of each width, "validation": the same, "lines": {part: Lines}, "tokenizers": of source and
target}.
"""

from apformer.tasks.defaults import feed, floor, init_from, initial_params, make_optimizer, model_params
from apformer.tasks.translation.corpus import Config, Options
from apformer.tasks.translation.evaluation import evaluate
from apformer.tasks.translation.page_data import page
from apformer.tasks.translation.recipes import RECIPES
from apformer.tasks.translation.search import translate
from apformer.tasks.translation.training import (
    NOT_COMPILED,
    check,
    describe,
    example,
    files,
    load,
    make_loss,
    sample,
    stored_settings,
    train_rows,
    validation,
)

ARCHITECTURES = ("seq2seq",)
