"""Word vectors: word2vec, trained on windows of a text, and the nearest words of each word.

`rows` is a `corpus.Rows`: the vocabulary, the count of each word, and the training and validation part of the text.
"""

from apformer.tasks.defaults import (
    feed,
    floor,
    init_from,
    initial_params,
    make_optimizer,
    model_params,
    stored_settings,
)
from apformer.tasks.words.corpus import Config, Options, files
from apformer.tasks.words.evaluation import evaluate, page
from apformer.tasks.words.nearest import neighbours
from apformer.tasks.words.recipes import RECIPES
from apformer.tasks.words.training import (
    NOT_COMPILED,
    check,
    describe,
    example,
    load,
    make_loss,
    sample,
    train_rows,
    validation,
)

ARCHITECTURES = ("word2vec",)
