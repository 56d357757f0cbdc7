"""Sums as text, least significant digit first: 5000000000 7000000000 21000000000 is 5 + 7 = 12.

Two terms of D digits are given, and the D + 1 digits of their sum are predicted. Rows are always drawn, so `rows` is
None.
"""

from apformer.report import attention, tables
from apformer.tasks import Evaluation
from apformer.tasks.drawn import describe, files, floor, load, train_rows
from apformer.tasks.plain import feed, init_from, initial_params, kept, make_optimizer, whole
from apformer.tasks.sums import evaluation
from apformer.tasks.sums.certificate import certify
from apformer.tasks.sums.continuation import predict
from apformer.tasks.sums.generator import Config
from apformer.tasks.sums.options import Options
from apformer.tasks.sums.page_data import EVALUATION, page
from apformer.tasks.sums.proof import contexts
from apformer.tasks.sums.recipes import RECIPES
from apformer.tasks.sums.training import NOT_COMPILED, check, example, make_loss, sample, validation
from apformer.tokenizers import digits as tokenizer

ARCHITECTURES = ("model",)


def evaluate(model, settings, rows, progress):
    """Exact sums of held-out pairs, random and with long chains of carries, and of pairs that are made to be hard."""
    result = evaluation.evaluate(settings.data, settings.options.test_sequences, model, progress=progress)
    pictures = attention.pictures(settings, model.params, validation(settings, rows), [*tokenizer.VOCABULARY])
    return Evaluation(result, evaluation.table(result), pictures, doubt=tables.doubt(result))
