"""Rows of terms by three rules in every base from 2 to 16, least significant digit first: =9 700 010 310.

One model for all: a row begins with its rule and its base. Rows are always drawn, so `rows` is None.
"""

from apformer.report import attention, figures, tables
from apformer.tasks import Evaluation
from apformer.tasks.bases import alphabet, evaluation
from apformer.tasks.bases.certificate import certify
from apformer.tasks.bases.continuation import predict
from apformer.tasks.bases.generator import Config
from apformer.tasks.bases.options import Options
from apformer.tasks.bases.page_data import EVALUATION, page
from apformer.tasks.bases.proof import contexts
from apformer.tasks.bases.recipes import RECIPES
from apformer.tasks.bases.training import NOT_COMPILED, check, example, make_loss, sample, validation
from apformer.tasks.drawn import describe, files, floor, load, train_rows
from apformer.tasks.plain import feed, init_from, initial_params, kept, make_optimizer, whole

ARCHITECTURES = ("model",)


def evaluate(model, settings, rows, progress):
    """Exact match by rule, base and width, on widths of training and on wider terms."""
    result = evaluation.evaluate(settings.data, settings.options.test_sequences, model, progress=progress)
    pictures = {"accuracy_by_width": figures.accuracy_by_width(result)}
    pictures |= attention.pictures(settings, model.params, validation(settings, rows), [*alphabet.CHARACTERS])
    return Evaluation(result, evaluation.table(result), pictures, doubt=tables.doubt(result))
