"""The home task: arithmetic progressions as fixed-width, zero-padded text, 007 010 013, continued term by term.

    x_n = x_1 + (n - 1) d          0 <= x_n < 10^D          D digits a term, a space between two terms

The first two terms fix a progression, so every later term can be predicted. Rows come from the generator, or from a
text file. `rows` is None in the one case, {split: Progressions} in the other.
"""

from apformer.report import attention, figures, tables
from apformer.tasks import Evaluation
from apformer.tasks.plain import feed, init_from, initial_params, kept, make_optimizer, whole
from apformer.tasks.progressions import bayes, evaluation, training
from apformer.tasks.progressions import generalization as suites
from apformer.tasks.progressions.continuation import predict
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.options import Options
from apformer.tasks.progressions.page_data import EVALUATION, page
from apformer.tasks.progressions.proof import contexts
from apformer.tasks.progressions.recipes import RECIPES
from apformer.tasks.progressions.training import (
    NOT_COMPILED,
    check,
    describe,
    example,
    floor,
    load,
    make_loss,
    sample,
    train_rows,
    validation,
)
from apformer.tasks.progressions.training import joined as missed
from apformer.tokenizers import digits as tokenizer

ARCHITECTURES = ("model", "recurrent")


def files(rows):
    """Nothing: rows are drawn again, or read again from their file."""
    return {}


def evaluate(model, settings, rows, progress):
    """Exact match and loss on held-out progressions, against the Bayes predictor where rows are drawn."""
    cfg, test = settings.data, training.test_rows(settings, rows)
    if rows is None:
        nats = bayes.bayes_nats(test, cfg)
        result = evaluation.evaluate(test, cfg.digits, model, bayes_nats=nats, progress=progress)
        result["bayes_floor"] = bayes.bayes_floor(cfg)
    else:  # a gap between the two says that the file was memorised
        result = evaluation.evaluate(test, cfg.digits, model, progress=progress)
        trained = training.test_rows(settings, rows, "train")
        result["trained"] = evaluation.evaluate(trained, cfg.digits, model, progress=progress)
    pictures = {
        "accuracy_by_position": figures.accuracy_by_position(result),
        "accuracy_by_difference": figures.accuracy_by(result, "difference"),
        "accuracy_by_carries": figures.accuracy_by(result, "carries"),
    }
    pictures |= attention.pictures(settings, model.params, validation(settings, rows).rows, [*tokenizer.VOCABULARY])
    return Evaluation(result, evaluation.table(result), pictures, doubt=tables.doubt(result))
