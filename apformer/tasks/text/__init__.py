"""A language model of a text: it reads a window of the text, and predicts each next token.

`rows` is a `shards.Prepared`.
"""

from apformer.decoding.generate import generate
from apformer.tasks.defaults import floor, init_from
from apformer.tasks.text.corpus import Config, Options
from apformer.tasks.text.evaluation import evaluate
from apformer.tasks.text.page_data import page
from apformer.tasks.text.recipes import RECIPES
from apformer.tasks.text.training import (
    NOT_COMPILED,
    adapters,
    check,
    describe,
    example,
    feed,
    files,
    initial_params,
    load,
    make_loss,
    make_optimizer,
    model_params,
    sample,
    stored_settings,
    train_rows,
    validation,
)

ARCHITECTURES = ("model", "recurrent")
