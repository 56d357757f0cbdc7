"""Linear recurrences as fixed-width text, 03 05 08 13 21: Fibonacci, doubling, alternating progressions and others.

    x_n = a x_{n-1} + b x_{n-2} + c  modulo 10^D

One rule or several: a row names its rule by its first character, or its terms tell. Rows are always drawn, so `rows`
is None.
"""

from apformer.report import attention, figures, tables
from apformer.tasks import Evaluation
from apformer.tasks.drawn import describe, files, floor, load, train_rows
from apformer.tasks.plain import feed, init_from, initial_params, kept, make_optimizer, whole
from apformer.tasks.recurrences import evaluation, training
from apformer.tasks.recurrences.certificate import certify
from apformer.tasks.recurrences.continuation import predict
from apformer.tasks.recurrences.generator import Config
from apformer.tasks.recurrences.options import Options
from apformer.tasks.recurrences.page_data import EVALUATION, page
from apformer.tasks.recurrences.recipes import RECIPES
from apformer.tasks.recurrences.training import NOT_COMPILED, check, example, make_loss, sample, validation
from apformer.tokenizers import digits as tokenizer

ARCHITECTURES = ("model",)


def evaluate(model, settings, rows, progress):
    """Exact match on held-out rows, by rule and by the number of the term."""
    result = evaluation.evaluate(training.test_rows(settings), settings.data, model, progress=progress)
    pictures = {"accuracy_by_position": figures.accuracy_by_position(result)}
    pictures |= attention.pictures(settings, model.params, validation(settings, rows), [*tokenizer.VOCABULARY])
    return Evaluation(result, evaluation.table(result), pictures, doubt=tables.doubt(result))
