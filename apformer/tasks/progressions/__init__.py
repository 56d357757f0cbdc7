"""The home task: continue arithmetic progressions, written as text with zero-padded terms such as 007 010 013.

    x_n = x_1 + (n - 1) d          0 <= x_n < 10^D          D digits a term, a space between two terms

The first two terms fix a progression, so every later term can be predicted. Rows come from the generator (`rows` is
None) or from a text file (`rows` is {split: Progressions}).
"""

from apformer.tasks.defaults import (
    feed,
    files,
    init_from,
    initial_params,
    make_optimizer,
    model_params,
    stored_settings,
)
from apformer.tasks.progressions.continuation import example, predict
from apformer.tasks.progressions.evaluation import evaluate
from apformer.tasks.progressions.generator import Config
from apformer.tasks.progressions.options import Options
from apformer.tasks.progressions.page_data import page
from apformer.tasks.progressions.proof import of as contexts
from apformer.tasks.progressions.recipes import RECIPES
from apformer.tasks.progressions.training import (
    NOT_COMPILED,
    check,
    describe,
    floor,
    load,
    make_loss,
    missed,
    sample,
    train_rows,
    validation,
)

ARCHITECTURES = ("model", "recurrent")
