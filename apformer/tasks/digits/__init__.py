"""Arithmetic progressions with terms of any number of digits: 7 10 13, 0007 0010 0013, or with 100 digits a term.

Every training row has a width of its own. Rows come from the generator, and `rows` is None, or from a text file.
"""

from apformer.report import attention, figures, tables
from apformer.tasks import Evaluation
from apformer.tasks.digits import evaluation
from apformer.tasks.digits.certificate import certify
from apformer.tasks.digits.continuation import predict
from apformer.tasks.digits.dataset import describe, load, train_rows
from apformer.tasks.digits.generator import Config
from apformer.tasks.digits.options import Options
from apformer.tasks.digits.page_data import EVALUATION, page
from apformer.tasks.digits.proof import contexts
from apformer.tasks.digits.recipes import RECIPES
from apformer.tasks.digits.training import NOT_COMPILED, check, example, make_loss, sample, validation
from apformer.tasks.drawn import files, floor
from apformer.tasks.plain import feed, init_from, initial_params, kept, make_optimizer, whole
from apformer.tokenizers import digits as tokenizer

ARCHITECTURES = ("model",)


def evaluate(model, settings, rows, progress):
    """Exact match width by width, on widths of training and on wider terms."""
    result = evaluation.evaluate(settings.data, settings.options.test_sequences, model, progress=progress)
    pictures = {"accuracy_by_width": figures.accuracy_by_width(result)}
    pictures |= attention.pictures(settings, model.params, validation(settings, rows), [*tokenizer.VOCABULARY])
    return Evaluation(result, evaluation.table(result), pictures, doubt=tables.doubt(result))
